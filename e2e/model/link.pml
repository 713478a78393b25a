/* link.pml - chain records whose link has no reliable answer. Names are numbered; a link is in flight until the server performs it,
   once, at any time, also after its sender gave up on it. The sender hears: done; EEXIST (also when an earlier transmission of
   the same request did it: no reply cache); or nothing it can use (a timeout, an error), at any time.
   Run:  spin -a link.pml && gcc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c && ./pan -E -m1000000 -w25
   Each record names a file of its writer, made before the link. A CLAIM's file is where its winner writes; a COMPACT's file replaces
   the file of the last CLAIM, which is unlinked afterwards; the file of a record that lost is unlinked too.
   Properties: no file that the chain names and did not supersede is unlinked; whoever goes on as winner stands in the chain
   under that name, with the file it writes to.

   The protocol: any answer but "done" -> read the name back. Our own record, known by its nonce: done. Another: lost, now the own file
   may go. No record there: unknown, the request may still be performed; link the same record again. To give up instead is allowed, but
   the file stays.

   Mutants:
     L1  EEXIST counts as lost without reading back        L2  EEXIST counts as done without reading back
     L3  read back, nothing there: counts as lost, file unlinked   L4  no usable answer counts as done
     L5  own record known by incarnation instead of nonce: a record of an attempt given up counts as this attempt's
   Results (full searches, 0 errors; Spin 6.5.2, one core): 2 brokers, 2 records each 102 165 states, 1 s | -DNA=3 4 209 932, 9 s. States until a mutant violates: L1 146, L2 956, L3 28, L4 7, L5 1 626 */
#ifndef NB
#define NB 2
#endif
#ifndef NK
#define NK 3                        /* names */
#endif
#ifndef NA
#define NA 2                        /* attempts (records) a broker */
#endif
#define NR (NB*NA)
#define RID (b*NA+a)
byte ch[NK];                        /* record + 1, 0 = free */
bool flight[NR]; byte name[NR];     /* request under way, to this name */
byte ans[NR];                       /* server performed it: 1 done, 2 EEXIST */
bool file[NR], compact[NR]; byte replaced[NR];      /* COMPACT: record + 1 whose file it supersedes */
bool superseded[NR];

#define STANDS(r) (ch[name[r]] == r+1)
proctype node(byte b) {
  byte k, a, own; unsigned got : 2;
  own = 0; a = 0;                    /* own: record + 1 of our last CLAIM in the chain, 0 = not an owner */
next:
  atomic { a < NA -> k = 0; do :: k < NK && ch[k] > 0 -> k++ :: else -> break od;      /* list */
    if :: k == NK -> goto done :: else fi;
    name[RID] = k; file[RID] = true;
    if :: own > 0 && file[own-1] -> compact[RID] = true; replaced[RID] = own :: skip fi;
    flight[RID] = true }
wait:
  if
  :: atomic { ans[RID] == 1 -> got = 1 }
  :: atomic { ans[RID] > 0 -> got = 2 }                   /* EEXIST, true or of our own record */
  :: atomic { got = 3 }                                   /* no usable answer */
  fi;
  if
  :: got == 1 -> goto won
#ifdef L1
  :: got == 2 -> goto lost
#elif defined(L2)
  :: got == 2 -> goto won
#endif
#ifdef L4
  :: got == 3 -> goto won
#endif
  :: else -> skip
  fi;
  atomic {                                                /* read the name back */
    if
#ifdef L5
    :: ch[k] > 0 && (ch[k]-1)/NA == b -> goto won
#else
    :: STANDS(RID) -> goto won
#endif
    :: ch[k] > 0 && !STANDS(RID) -> goto lost
#ifdef L3
    :: ch[k] == 0 -> goto lost
#else
    :: ch[k] == 0 -> flight[RID] = true; goto wait        /* the same record again */
    :: ch[k] == 0 -> got = 0; a++; own = 0; goto next     /* given up; the file stays */
#endif
    fi }
won:
  atomic { assert(STANDS(RID)); got = 0;
    if :: compact[RID] -> file[replaced[RID]-1] = false; assert(superseded[replaced[RID]-1]); own = 0   /* unlink what it replaced */
       :: else -> own = RID+1 fi;
    a++; goto next }
lost:
  atomic { file[RID] = false; assert(!STANDS(RID)); got = 0; own = 0; a++; goto next }
done: skip }

proctype server(byte r) {           /* one request under way; performed at any time */
end: do
  :: atomic { flight[r] -> flight[r] = false;
       if :: ch[name[r]] == 0 -> ch[name[r]] = r+1; ans[r] = 1; assert(file[r]);
             if :: compact[r] -> superseded[replaced[r]-1] = true :: else fi
          :: else -> ans[r] = 2 fi }
  od }
init { byte i; atomic { i = 0; do :: i < NR -> run server(i); i++ :: else -> break od;
  i = 0; do :: i < NB -> run node(i); i++ :: else -> break od; i = 0 } }
