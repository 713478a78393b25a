/* op_sample.h - documents that the tests of the operator share. */
#ifndef OP_SAMPLE_H
#define OP_SAMPLE_H

#include "crd/ko_crd.h"
#include "kt.h"

/* YAML text to a document; fails the test if it does not parse. New reference. */
json_t *op_yaml(const char *text);
/* The text of a file of the source tree, by its path there; until the next call. */
const char *op_source(const char *path);
/* A CustomResourceDefinition as it is installed, by its file's name in crds/. New reference. */
json_t *op_crd(const char *file);
/* A minimal valid KaasCluster "demo" in "ns" with uid and generation; extra: more lines of spec, each
 * indented by two spaces, or "". */
json_t *op_cluster_doc(const char *extra);
struct ko_cluster *op_cluster(const char *extra);

#endif
