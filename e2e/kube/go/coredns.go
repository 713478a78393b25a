package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

// The order of the plugins in the chain: that of CoreDNS's own plugin.cfg, but for template, which
// comes last, for what nobody else knows.
func init() {
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "log", "cache", "hosts", "kubernetes", "template"}
	programs["coredns"] = coremain.Run
}
