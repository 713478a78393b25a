/* delete.pml - deletion of a topic: the tombstone first, then the removal; nobody re-creates or adopts it.
   One partition whose directory, chain names ctl.0 ... and data files vanish one by one, in any order, under the hands of claimants
   that listed before, during or after. Names are numbered here, because a removed name can be linked again.
   Run:  spin -a delete.pml && gcc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c && ./pan -E -m1000000 -w25
   Properties: nobody opens under a CLAIM linked after the tombstone; an offset of the topic is acked once, ever (I4), also while
   the topic goes; a deleted topic is not adopted.

   The protocol: the remover links deleted/<id>, syncs, then removes. A claimant looks for the tombstone freshly (never by a lookup
   that may be answered from a cache) as the last step before it opens, after all scans and seals. Not seen then: no name and
   no byte was missing when it listed and scanned. The tombstone stays for ever.

   Mutants:
     D1  removal before the tombstone          D2  the look only before the CLAIM (fresh)
     D3  the look after the CLAIM and before the scan, and a data file that is absent counts as empty
     D4  no look where the directory exists    D5  the last look by a lookup that may be stale (negative dentry)
     D6  the tombstone is removed when all is gone    D7  adoption looks for the tombstone by a stale lookup
   Results (full searches, 0 errors; Spin 6.5.2, one core): -DNB=2 1 352 696 states, 4 s | -DNB=3 -DMAXC=2 257 131, 1 s | -DNB=2 -DADOPT 8 972 985, 32 s.
   -DNB=3 31 868 971, 277 s, 1.5 GB. States until a mutant violates (-DNB=2): D1 122 571, D2 26 778, D3 2 434, D4 24 113,
   D5 33 701, D6 20 107, D7 837 */
#ifndef NB
#define NB 2
#endif
#ifndef MAXA
#define MAXA 1                     /* batches an epoch */
#endif
#define NK 5                       /* chain names */
#ifndef MAXC
#define MAXC 3                     /* claims */
#endif
#define CLAIM 1
#define SEAL 2
typedef Rec { unsigned typ : 2;    /* 0 = the name is free */
  unsigned ep : 3; unsigned ln : 2; };
Rec c[NK]; bool dir; bool made;
typedef Ep { bool file; unsigned ln : 2; bool fence; };   /* by claim; the fence stands for the claimant's incarnation */
Ep e[NK];
unsigned claims : 3;               /* claims ever linked: each has its own files */
bool tomb; bool ack[16]; 

#define NAMES (c[0].typ>0) + (c[1].typ>0) + (c[2].typ>0) + (c[3].typ>0) + (c[4].typ>0)
#define QUIT n = 0; i = 0; u = 0; my = 0; base = 0; x = 0; L = 0; late = false; fresh = false; goto idle
#if defined(D2) || defined(D4)
#define LASTLOOK false
#elif defined(D5)
#define LASTLOOK (tomb && fresh)
#elif defined(D3)
#define LASTLOOK false
#else
#define LASTLOOK tomb
#endif

proctype node(byte b) {
  byte n, i, u; unsigned my : 3; byte base; unsigned x : 3; unsigned L : 2; bool late, fresh;
idle:
  atomic { claims < MAXC -> skip }
#if defined(D2) || defined(D4)
  atomic { if :: tomb && (!dir || !made) -> QUIT :: else fi }
#endif
#ifdef D2
  atomic { if :: tomb -> QUIT :: else fi }
#endif
  atomic {                                                      /* mkdir if absent, list */
    dir = true; made = true;
    n = NAMES;
    if :: n >= NK || (n > 0 && c[n-1].typ == 0) -> QUIT    /* a gap: corrupt, stop */
       :: else fi;
    do :: i < n ->                                                /* u: epochs that are not sealed */
          if :: c[i].typ == CLAIM -> u = u | (1 << c[i].ep)
             :: else -> base = base + c[i].ln; u = u & (127 - (1 << c[i].ep)) fi; i++
       :: else -> break od;
    i = 0 }
  atomic {                                                      /* link CLAIM: own file exists before */
    if :: !dir || n >= NK || c[n].typ != 0 || claims >= MAXC -> QUIT   /* ENOENT or EEXIST */
       :: else -> claims++; my = claims; c[n].typ = CLAIM; c[n].ep = my; e[my].file = true; n++; late = tomb fi }
#ifdef D3
  atomic { if :: tomb -> QUIT :: else fi }
#endif
next:
  atomic { if :: u == 0 -> goto look :: u & 2 -> x = 1 :: !(u & 2) && (u & 4) -> x = 2 :: !(u & 6) && (u & 8) -> x = 3
              :: !(u & 14) && (u & 16) -> x = 4 :: else -> x = 5 fi;
           u = u & (127 - (1 << x)) }
  e[x].fence = true;
  atomic {                                                      /* scan */
#ifdef D3
    L = (e[x].file -> e[x].ln : 0)
#else
    if :: !e[x].file -> QUIT :: else -> L = e[x].ln fi
#endif
  }
  atomic {                                                      /* link SEAL */
    if :: !dir || n >= NK || c[n].typ != 0 -> QUIT
       :: else -> c[n].typ = SEAL; c[n].ep = x; c[n].ln = L; n++; base = base + L; x = 0; L = 0; goto next fi }
look:
#ifdef D5
  if :: fresh = true :: fresh = false fi;
#endif
  atomic { if :: LASTLOOK -> QUIT :: else fi }
  atomic { assert(!late) }                                       /* open */
serve:
  do
  :: atomic { e[my].ln < MAXA && base < 6 -> e[my].ln++ }
     if :: e[my].fence -> QUIT :: else fi;
     atomic { assert(!ack[base + e[my].ln - 1]); ack[base + e[my].ln - 1] = true }
  :: QUIT
  od }

proctype remover() {
#ifdef D1
  atomic { made -> skip }
  do :: atomic { c[0].typ > 0 -> c[0].typ = 0 } :: atomic { c[1].typ > 0 -> c[1].typ = 0 } :: atomic { c[2].typ > 0 -> c[2].typ = 0 }
     :: atomic { c[3].typ > 0 -> c[3].typ = 0 } :: break od;
#endif
  atomic { made -> tomb = true }
  do
  :: atomic { c[0].typ > 0 -> c[0].typ = 0; c[0].ep = 0; c[0].ln = 0 }
  :: atomic { c[1].typ > 0 -> c[1].typ = 0; c[1].ep = 0; c[1].ln = 0 }
  :: atomic { c[2].typ > 0 -> c[2].typ = 0; c[2].ep = 0; c[2].ln = 0 }
  :: atomic { c[3].typ > 0 -> c[3].typ = 0; c[3].ep = 0; c[3].ln = 0 }
  :: atomic { c[4].typ > 0 -> c[4].typ = 0; c[4].ep = 0; c[4].ln = 0 }
  :: atomic { e[1].file -> e[1].file = false }
  :: atomic { e[2].file -> e[2].file = false }
  :: atomic { e[3].file -> e[3].file = false }
  :: atomic { dir && NAMES == 0 -> dir = false; 
#ifdef D6
       tomb = false; goto done
#endif
     }
  od;
done: skip }

proctype adopter() {               /* the inventory: topics first, tombstones after them */
  bool was;
  atomic { dir -> was = tomb }
  atomic { if
#ifdef D7
           :: true -> skip                                       /* a stale lookup may deny any tombstone */
#endif
           :: !tomb -> skip
           :: tomb -> goto done fi; assert(!was) }
done: skip }
init { byte i; atomic { run remover();
#if defined(ADOPT) || defined(D7)
  run adopter();
#endif
  i = 0; do :: i < NB -> run node(i); i++ :: else -> break od; i = 0 } }
