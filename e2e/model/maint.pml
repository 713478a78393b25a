/* maint.pml - log maintenance by an owner that may be deposed: COMPACT and TRIM, links without a reply, a server crash.
   One partition, one data file of sealed records, and the live end of the log. Names are numbered; a link is in flight until the server performs it,
   once, at any time, also after its sender gave up (link.pml). A crash takes unsynced contents, and names in a directory that was not synced.
   Run:  spin -a maint.pml && gcc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c && ./pan -E -m1000000 -w25
   Properties: the file that the chain names is there, whole, whatever happens; a client that was told of a new log start never
   finds an older one at any owner; the log start lies within the log.

   The protocol. COMPACT: the replacement is written and synced, the directory is synced, the record is linked; only when the own record is known to
   stand, the old file is unlinked. TRIM (DeleteRecords, the start may lie inside a file): at most at the acked end; answered when the record is known
   to stand. The start of a log is the largest of all TRIMs. Any answer of a link but "done": read the name back; nothing there: the same again, or give
   up and leave every file alone. Whoever lost the name is deposed, and removes its own replacement only.

   Mutants:
     K1  old file unlinked before the record is linked      K2  record linked before the replacement is synced
     K3  record linked before the directory is synced       K4  no record there counts as lost: replacement unlinked
     K5  no usable answer counts as done                    K6  EEXIST counts as done
     K7  a deposed owner unlinks what its record would have replaced     K8 EEXIST counts as lost without reading back
     T1  DeleteRecords answered before its TRIM stands      T2  the last TRIM counts, not the largest
     T3  TRIM up to the issued end, not the acked one       T4  a new owner takes the start from memory of an older look at the chain */
#ifndef NB
#define NB 3
#endif
#ifndef NA
#define NA 2                        /* records a broker may send besides claims */
#endif
#ifndef NK
#define NK 4                        /* names; 0 is the first claim */
#endif
#define NR (NB*NA)
#define RID (b*NA+a)
#define CLAIM 1
#define COMPACT 2
#define TRIM 3
typedef Rec { unsigned typ : 2; byte v; };  /* CLAIM: broker; COMPACT: record id + 1 = its replacement; TRIM: start */
Rec ch[NK]; byte n = 1;             /* the chain */
byte who[NK];                       /* id + 1 of the record sent that stands there, 0 = a claim */
typedef Req { bool flight; unsigned k : 3; unsigned typ : 2; unsigned v : 3; unsigned ans : 2; };
Req q[NR];
/* files: 0 the first one, r + 1 the replacement of record r. 0 not there, 1 on the server, 2 synced; named: its directory entry is durable */
byte f[NR + 1]; bool named[NR + 1];
byte cur;                           /* the file the chain names */
byte start, promised;               /* largest TRIM; ghost: what a client was told */
byte last;                          /* the last TRIM (T2) */
byte acked = 1, issued = 1;         /* end of the log */
byte crashed; bool c1;              /* brokers 1 and 2 are alike: 1 claims first */

#ifdef T2
#define START last
#else
#define START start
#endif
inline inv() { assert(f[cur] > 0); assert(START >= promised); assert(START <= acked) }

proctype node(byte b) {
  byte a, k, old, mem; unsigned got : 2; bool owner;
  owner = (b == 0); k = 1;
idle:
  if
  :: atomic { !owner && n < NK && (b < 2 || c1) -> c1 = c1 || b == 1; ch[n].typ = CLAIM; ch[n].v = b; n++; k = n; owner = true;      /* takeover: the end is what is found */
              if :: issued > acked -> acked = issued :: issued > acked -> issued = acked :: else fi; inv();
#ifdef T4
              assert(mem >= promised)
#else
              mem = START; assert(mem >= promised)
#endif
            }; goto idle
#ifdef T4
  :: atomic { mem = START }; goto idle
#endif
  :: atomic { owner && issued < 3 && n == k -> issued++ }; goto idle
  :: atomic { owner && issued > acked && n == k -> acked = issued }; goto idle    /* synced and checked; the rest of chain.pml */
  :: owner && a < NA && k < NK -> goto compact
  :: owner && a < NA && k < NK -> goto trim
  fi;
compact:
  atomic { old = cur; f[RID+1] = 1 }
#ifndef K2
  atomic { if :: f[RID+1] == 0 -> goto compact :: else -> f[RID+1] = 2 fi }
#endif
#ifndef K3
  atomic { if :: f[RID+1] < 1 -> goto compact :: else -> named[RID+1] = true fi }   /* a name is durable when an NFS server answers; a local crash ends us */
#endif
#ifdef K1
  atomic { f[old] = 0; inv() }
#endif
  atomic { q[RID].flight = true; q[RID].k = k; q[RID].typ = COMPACT; q[RID].v = RID+1; goto wait }
trim:
  atomic {
#ifdef T3
    q[RID].v = issued;
#else
    if :: q[RID].v = acked :: acked > 1 -> q[RID].v = 1 fi;
#endif
    q[RID].flight = true; q[RID].k = k; q[RID].typ = TRIM;
#ifdef T1
    if :: promised < q[RID].v -> promised = q[RID].v :: else fi
#endif
  }
wait:
  if
  :: atomic { q[RID].ans == 1 -> got = 1 }
  :: atomic { q[RID].ans > 0 -> got = 2 }                   /* EEXIST, true or of our own record */
  :: atomic { got = 3 }                                     /* no usable answer */
  fi;
  atomic {                                                  /* read the name back */
    if
    :: got == 1 -> goto won
#ifdef K5
    :: got == 3 -> goto won
#endif
#ifdef K6
    :: got == 2 -> goto won
#endif
#ifdef K8
    :: got == 2 -> goto lost
#endif
    :: n > k && who[k] == RID+1 -> goto won
    :: n > k && who[k] != RID+1 -> goto lost
#ifdef K4
    :: n <= k -> goto lost
#else
    :: n <= k -> q[RID].flight = true; goto wait              /* the same record again */
    :: n <= k -> got = 0; old = 0; a++; owner = false; goto idle     /* given up: every file stays */
#endif
    fi }
won:
  atomic { got = 0; k++;
    if :: q[RID].typ == COMPACT -> f[old] = 0
       :: else -> if :: promised < q[RID].v -> promised = q[RID].v :: else fi fi;
    old = 0; a++; inv(); goto idle }
lost:
  atomic { got = 0; owner = false;
    if :: q[RID].typ == COMPACT ->
#ifdef K7
          f[old] = 0;
#endif
          f[RID+1] = 0 :: else fi;
    old = 0; a++; inv(); goto idle }
}

proctype server() {
  byte r;
end: do
  :: atomic { q[0].flight -> r = 0; goto perform }
  :: atomic { q[1].flight -> r = 1; goto perform }
#if NR > 2
  :: atomic { q[2].flight -> r = 2; goto perform }
  :: atomic { q[3].flight -> r = 3; goto perform }
#endif
#if NR > 4
  :: atomic { q[4].flight -> r = 4; goto perform }
  :: atomic { q[5].flight -> r = 5; goto perform }
#endif
  :: atomic { crashed < 1 -> crashed++; r = 1;
       do :: r <= NR -> if :: f[r] == 1 || !named[r] -> f[r] = 0 :: else fi; r++ :: else -> break od; r = 0; inv() }
  od;
perform:
  atomic { q[r].flight = false;
    if :: q[r].k == n -> ch[n].typ = q[r].typ; ch[n].v = q[r].v; who[n] = r+1; n++; q[r].ans = 1;
          if :: q[r].typ == COMPACT -> cur = r+1
             :: else -> last = q[r].v; if :: start < q[r].v -> start = q[r].v :: else fi fi; inv()
       :: else -> q[r].ans = 2 fi;
    r = 0; goto end }
}
init { byte i; atomic { ch[0].typ = CLAIM; f[0] = 2; named[0] = true; run server(); i = 0; do :: i < NB -> run node(i); i++ :: else -> break od; i = 0 } }
