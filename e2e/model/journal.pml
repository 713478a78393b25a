/* journal.pml - a journal shared by all partitions of an incarnation (docs/adr/0013): one sync a tick makes the batches of many partitions
   durable; partition files are written behind it and synced in the background; a journal file is removed when all it holds is in synced files.
   A tick is a journal file of its own here: the finest grain of removal. Server crashes as in crash.pml: of every file only what is durable is left.
   Broker 0 is the owner of epoch 1 of every partition when the search starts; the brokers from 0 to NO-1 serve (tick) and all claim.
   Run:  spin -a journal.pml && gcc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c && ./pan -E -m1000000 -w25
   Properties: acked <= seal; whatever somebody was told of (ack, success for a retried batch, read) can be read after every crash, from the file,
   the copy its SEAL names, or, before a SEAL, from the journal; of two entries for one offset the acked one counts.

   The protocol. Owner: a turn goes into the files and, framed, into the journal; journal synced, fence checked, acked. Some partitions' files may be synced
   directly in the same turn, without a frame. Behind it files are synced one by one; a journal file is unlinked when each of its frames is in a file whose sync
   returned 0, or of a sealed epoch. At most W batches of a file are neither synced nor acked. Own SEAL (move, error, re-claim): the file is
   synced up to the acked length; if it cannot be, the rest is copied as below. A turn whose sync failed is refused, its partitions go on under a new epoch.
   Claimant: fence, list the journals, read them, then open and read the file; the longest prefix of both. A frame that is gone when its bytes are fetched: all over
   again. From the first framed batch on, and at least the last W, all goes into a copy of its own, synced before the SEAL names it. The journals of a
   dead incarnation go after it is fenced and then no unsealed epoch names it, in this order.

   Mutants:
     J1  journals listed before the fence               J2  file read before the journals
     J3  journal removed when its files are written, not synced      J3B when the file of one partition is synced
     J4  the fence is checked before the journal is synced           J5  SEAL names the file for what only the journal holds
     J6  copy of the last W only, not from the first frame on        J6B copy from the first frame on, not of the last W
     J7  own SEAL without a sync of the file            J7B own sync of a file while another is under way (an error is told once)
     J8  a second sync of a file after an error is believed          J9  goes on in the same epoch after an error on the journal
     J9B a second sync of the journal after an error is believed     J10 sweep of a dead incarnation looks before it fences
     J11 whoever sealed one partition removes the dead one's journals    J12 a frame counts for every file of the partition
     J14 a frame that is gone when it is fetched ends the log        J15 SEAL linked before the copy is synced */
#ifndef NP
#define NP 2          /* partitions */
#endif
#ifndef NB
#define NB 3          /* brokers */
#endif
#ifndef NO
#define NO 1          /* brokers that serve after an open */
#endif
#ifndef MAXE
#define MAXE 2        /* epochs a partition, the first one's included; <= 3 */
#endif
#ifndef MAXB
#define MAXB 2        /* batches an epoch, <= 3 */
#endif
#ifndef NT
#define NT 2          /* ticks an incarnation, <= 3 */
#endif
#ifndef W
#define W 1           /* batches of a file neither synced nor acked */
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
typedef Ep { unsigned own : 2; bool sealed; unsigned seal : 2; bool maybe;
  unsigned cut : 2;                /* the file counts up to here, the rest is in the copy */
  unsigned copy : 2;               /* 0 none, 1 on the server, 2 durable */
  unsigned is : 2; unsigned srv : 2; unsigned dur : 2;   /* the file: issued, on the server, durable */
  bool err, told1;                 /* a sync of the file failed: none is believed any more; one was told, and has not noted it yet */
  unsigned acked : 2; unsigned told : 2; };              /* ghosts: by its owner; to anybody */
typedef Part { Ep e[4]; unsigned last : 2; bool cur[NB]; };
Part P[NP];
typedef Tick { byte c[NP]; };      /* epoch * 4 + batch of each partition, 0 = none */
typedef Jr { unsigned n : 2;       /* ticks issued: names 0 .. n-1 were made */
  byte srv, dur, gone, fail;       /* bit masks over ticks */
  Tick t[NT]; };
Jr J[NB];
bool fence[NB];
byte op[NB*NP];  /* epoch that is open here, 0 = none */
byte busy[NB*NP];                  /* a turn with this partition is not settled: 1 in the journal, 2 synced directly */
#ifdef J15
#define COPIED 1
#else
#define COPIED 2
#endif
unsigned crashes : 2; bool c1;

#define E(q, i) P[q].e[i]
#define ALLSEALED(m) ((m<2 || E(p,1).sealed) && (m<3 || E(p,2).sealed))
#define FIRSTOPEN(m) ((m>1 && !E(p,1).sealed) -> 1 : ((m>2 && !E(p,2).sealed) -> 2 : 0))
#define ISSUED(o) ((1 << J[o].n) - 1)
#define AT(o, k, q, i, x) (J[o].n > k && (J[o].srv & (1<<k)) && !(J[o].gone & (1<<k)) && J[o].t[k].c[q] == (i)*4 + (x))
#if NT > 2
#define INJ(q, i, x) (AT(E(q,i).own,0,q,i,x) || AT(E(q,i).own,1,q,i,x) || AT(E(q,i).own,2,q,i,x))
#else
#define INJ(q, i, x) (AT(E(q,i).own,0,q,i,x) || AT(E(q,i).own,1,q,i,x))
#endif
#define HAS(q, i, x) (E(q,i).told < x || E(q,i).srv >= x || INJ(q,i,x))
#define FROMFILE(q, i) (E(q,i).cut < E(q,i).told -> E(q,i).cut : E(q,i).told)
#define THERE(q, i) (E(q,i).sealed -> (E(q,i).srv >= FROMFILE(q,i) && (E(q,i).told <= E(q,i).cut || E(q,i).copy > 0)) : (HAS(q,i,1) && HAS(q,i,2)))
#define ACKOK(q, i) (!E(q,i).sealed || E(q,i).acked <= E(q,i).seal)
inline inv() { assert(ACKOK(0,1) && ACKOK(0,2)); assert(THERE(0,1) && THERE(0,2));
#if MAXE > 2
  assert(ACKOK(0,3) && THERE(0,3));
#endif
#if NP > 1
  assert(ACKOK(1,1) && ACKOK(1,2)); assert(THERE(1,1) && THERE(1,2));
#endif
}
inline back1(q, i) { if :: E(q,i).copy == 1 -> E(q,i).copy = 0 :: else fi; E(q,i).srv = E(q,i).dur }
inline took() { P[p].cur[0] = (b == 0 && P[p].cur[0]); P[p].cur[1] = (b == 1 && P[p].cur[1]);
#if NB > 2
  P[p].cur[2] = (b == 2 && P[p].cur[2])
#endif
}
#define ME (b*NP+p)

#ifdef J12
#define COUNTS J[E(p,x).own].t[from].c[p] > 0
#else
#define COUNTS J[E(p,x).own].t[from].c[p] / 4 == x
#endif

proctype take(byte b; byte p) {
  unsigned my : 2; unsigned x : 2; unsigned L : 2; unsigned from : 2; byte ls, jm, bad, i;
  if :: b == 0 -> my = 1; goto serve :: else -> skip fi;
idle:
  atomic {                           /* list, and link CLAIM: EEXIST would change nothing. 1 and 2 are alike: 1 claims first */
    P[p].last < MAXE && (b < 2 || c1) -> P[p].cur[b] = true; took();
    E(p,P[p].last).maybe = ALLSEALED(P[p].last);
    P[p].last++; my = P[p].last; c1 = c1 || b == 1; E(p,my).own = b; x = FIRSTOPEN(my);
    if :: x == 0 -> goto open :: else fi }
recover:
  if
  :: atomic { E(p,x).own == b && E(p,x).maybe -> goto ownseal }
  :: atomic { !E(p,x).maybe -> L = 0; from = 0; goto sealx }
#ifdef J1
  :: atomic { E(p,x).own != b && E(p,x).maybe -> ls = ISSUED(E(p,x).own) & ~J[E(p,x).own].gone }; fence[E(p,x).own] = true
#else
  :: atomic { E(p,x).own != b && E(p,x).maybe -> fence[E(p,x).own] = true }
#endif
  fi;
#ifdef J2
  atomic { L = E(p,x).srv }
#endif
list:
#ifndef J1
  atomic { ls = ISSUED(E(p,x).own) & ~J[E(p,x).own].gone }
#endif
reading:
  atomic {
    if :: ls & 1 -> ls = ls & ~1; from = 0
       :: !(ls & 1) && (ls & 2) -> ls = ls & ~2; from = 1
       :: !(ls & 3) && (ls & 4) -> ls = ls & ~4; from = 2
       :: ls == 0 -> goto readfile
    fi;
    if :: (J[E(p,x).own].srv & (1<<from)) && !(J[E(p,x).own].gone & (1<<from)) && COUNTS ->
          i = 1 << (J[E(p,x).own].t[from].c[p] % 4); jm = jm | i;
#ifdef J12
          if :: J[E(p,x).own].t[from].c[p] / 4 != x -> bad = bad | i :: else fi;
#endif
          if :: J[E(p,x).own].fail & (1<<from) -> bad = bad | i :: else fi; i = 0
       :: else
    fi; from = 0; goto reading }
readfile:
  atomic {                                                          /* open and read the file */
#ifndef J2
    L = E(p,x).srv;
#endif
    assert(!((bad & 2) && E(p,x).acked >= 1) && !((bad & 4) && E(p,x).acked >= 2)); bad = 0;
    from = L; i = L;
    do :: L < MAXB && (jm & (2 << L)) -> L++ :: else -> break od;
#ifdef J5
    from = L; i = L;
#else
    from = L;
#ifndef J6
    if :: jm & 2 -> from = 0 :: !(jm & 2) && (jm & 4) && from > 1 -> from = 1 :: else fi;
#endif
#ifndef J6B
    if :: from > L - W && L > W -> from = L - W :: L <= W -> from = 0 :: else fi;
#endif
#endif
    jm = 0; if :: i >= L -> i = 0; goto sealx :: else fi }
  atomic {                                                          /* bytes that only frames have */
    do :: i < L && INJ(p,x,i+1) -> i++
#ifdef J14
       :: i < L && !INJ(p,x,i+1) -> L = i; from = (from < L -> from : L); i = 0; break
#else
       :: i < L && !INJ(p,x,i+1) -> i = 0; L = 0; from = 0; goto list     /* gone: all over again */
#endif
       :: i >= L -> i = 0; break od }
  /* The copy is written and synced here, again if the server crashes meanwhile; nobody else knows of it before the SEAL. */
sealx:
  atomic {
    if :: P[p].cur[b] -> took(); assert(!E(p,x).sealed); E(p,x).sealed = true; E(p,x).seal = L; E(p,x).cut = from; E(p,x).copy = (L > from -> COPIED : 0); inv();
#ifdef J11
          if :: E(p,x).own != b -> J[E(p,x).own].gone = ISSUED(E(p,x).own) :: else fi; inv();
#endif
       :: else -> P[p].cur[b] = true;
          if :: P[p].last != my || x == my -> L = 0; from = 0; goto idle   /* deposed: leave, */
             :: x == my && !E(p,x).sealed -> goto sealx                                            /* or, still alive, offer the own seal */
             :: P[p].last == my && x != my fi
    fi;
    x = FIRSTOPEN(my); L = 0; from = 0;
    if :: E(p,my).sealed -> goto idle
       :: !E(p,my).sealed && x == 0 -> goto open
       :: !E(p,my).sealed && x > 0 -> goto recover
    fi }
open:                                /* success for retried batches and reads of all that is sealed may come at once */
  atomic { assert(ALLSEALED(my)); op[ME] = my; E(p,1).told = E(p,1).seal; if :: my > 2 -> E(p,2).told = E(p,2).seal :: else fi; inv() }
serve:
  atomic { b < NO && !busy[ME] -> op[ME] = 0; x = my }              /* move, error, deposed: stop, let the turn end */
ownseal:                                                            /* x: an epoch of ours, at its acked length */
#ifdef J7
  atomic { L = E(p,x).acked; from = L; goto sealx }
#else
  L = E(p,x).acked;
  if
  :: atomic { !E(p,x).err && !E(p,x).told1 && E(p,x).srv == E(p,x).is -> E(p,x).dur = E(p,x).srv; from = L; goto sealx }
#ifdef J7B
  :: atomic { !E(p,x).err && E(p,x).told1 -> from = L; goto sealx }
#endif
#ifdef J8
  :: atomic { E(p,x).err -> from = L; goto sealx }
#endif
  :: atomic { !E(p,x).told1 -> E(p,x).err = true; from = (E(p,x).dur < L -> E(p,x).dur : L); goto sealx }   /* what its syncs confirmed, the rest from the journal */
  fi
#endif
}

#ifdef DIRECT
#define MODE :: busy[ME] = 1 :: E(p,op[ME]).err || E(p,op[ME]).told1 -> busy[ME] = 1 :: !(E(p,op[ME]).err || E(p,op[ME]).told1) -> busy[ME] = 2
#else
#define MODE :: busy[ME] = 1
#endif
#define EACH(what) p = 0; do :: p < NP -> what; p++ :: else -> break od; p = 0
#define NOW (J[b].n - 1)
proctype tick(byte b) {            /* group commit of an incarnation */
  byte p; bool j;
idle:
  atomic { j = false;
    EACH(if :: op[ME] > 0 && E(p,op[ME]).acked < MAXB && !E(p,op[ME]).err -> if MODE fi :: op[ME] > 0 -> skip :: op[ME] == 0 fi);
    EACH(if :: busy[ME] == 1 -> j = true :: else fi);
    if :: j && J[b].n == NT -> EACH(busy[ME] = 0); j = false; goto idle
       :: !j && !(busy[b*NP] == 2 || busy[b*NP+NP-1] == 2) -> goto idle
       :: else fi;
    EACH(if :: busy[ME] > 0 -> E(p,op[ME]).is = E(p,op[ME]).acked + 1 :: else fi);
    if :: j -> EACH(if :: busy[ME] == 1 -> J[b].t[J[b].n].c[p] = op[ME]*4 + E(p,op[ME]).acked + 1 :: else fi); J[b].n++ :: else fi }
#ifdef J4
  if :: fence[b] -> goto fenced :: else fi;
#endif
  if
  :: !j -> skip
  :: atomic { j && (J[b].srv & (1 << NOW)) -> J[b].dur = J[b].dur | (1 << NOW) }
#ifndef NOJERR
  :: atomic { j -> J[b].fail = J[b].fail | (1 << NOW);              /* error */
#ifdef J9B
       skip }
#elif defined(J9)
       EACH(if :: busy[ME] == 1 -> busy[ME] = 0; E(p,op[ME]).is = E(p,op[ME]).acked :: else fi); goto idle }
#else
       EACH(if :: busy[ME] == 1 -> busy[ME] = 0; op[ME] = 0 :: else fi) }
#endif
#endif
  fi;
#ifdef DIRECT
  p = 0;
  do
  :: atomic { p < NP && busy[ME] == 2 && !E(p,op[ME]).told1 && !E(p,op[ME]).err && E(p,op[ME]).srv == E(p,op[ME]).is -> E(p,op[ME]).dur = E(p,op[ME]).srv; p++ }
  :: atomic { p < NP && busy[ME] == 2 && !E(p,op[ME]).told1 -> E(p,op[ME]).err = true; busy[ME] = 0; op[ME] = 0; p++ }
#ifdef J7B
  :: atomic { p < NP && busy[ME] == 2 && E(p,op[ME]).told1 -> p++ }
#endif
  :: atomic { p < NP && busy[ME] != 2 -> p++ }
  :: atomic { p == NP -> p = 0; break }
  od;
#endif
  atomic {                           /* check and ack: an ack that comes later counts no more and no less */
#ifndef J4
    if :: fence[b] -> goto fenced :: else fi;
#endif
    EACH(if :: busy[ME] > 0 -> busy[ME] = 0; E(p,op[ME]).acked++;
                            if :: E(p,op[ME]).told < E(p,op[ME]).acked -> E(p,op[ME]).told = E(p,op[ME]).acked :: else fi
            :: else fi);
    inv(); goto idle }
fenced: atomic { EACH(op[ME] = 0; busy[ME] = 0); j = false }
}

#ifdef J3
#define SAFE(q, k) (J[b].t[k].c[q] == 0 || E(q, J[b].t[k].c[q]/4).is >= J[b].t[k].c[q]%4 || E(q, J[b].t[k].c[q]/4).sealed)
#else
#define SAFE(q, k) (J[b].t[k].c[q] == 0 || E(q, J[b].t[k].c[q]/4).dur >= J[b].t[k].c[q]%4 || E(q, J[b].t[k].c[q]/4).sealed)
#endif
#if NP == 1
#define SAFEALL(k) SAFE(0, k)
#elif defined(J3B)
#define SAFEALL(k) ((J[b].t[k].c[0] > 0 && SAFE(0, k)) || (J[b].t[k].c[1] > 0 && SAFE(1, k)))
#else
#define SAFEALL(k) (SAFE(0, k) && SAFE(1, k))
#endif
/* Files are synced and journals removed behind the turns, also by one that is fenced and does not know it. */
#ifdef NOFERR
#define FAILSYNC(q, i)
#else
#define FAILSYNC(q, i) :: atomic { P[q].last >= i && E(q,i).own == b && !E(q,i).err && E(q,i).dur < E(q,i).is -> E(q,i).told1 = true; r = q; y = i }; goto noted
#endif
#define SYNC(q, i) :: atomic { P[q].last >= i && E(q,i).own == b && !E(q,i).err && E(q,i).srv == E(q,i).is && E(q,i).dur < E(q,i).srv -> E(q,i).dur = E(q,i).srv }
#define REMOVE(k) :: atomic { J[b].n > k && !(J[b].gone & (1<<k)) && SAFEALL(k) -> J[b].gone = J[b].gone | (1<<k); inv() }
proctype back(byte b) {
  byte r, y;
end: do
  SYNC(0, 1) FAILSYNC(0, 1)
#if MAXE > 2 || NO > 1
  SYNC(0, 2) FAILSYNC(0, 2)
#endif
#if MAXE > 2 && NO > 1
  SYNC(0, 3) FAILSYNC(0, 3)
#endif
#if NP > 1
  SYNC(1, 1) FAILSYNC(1, 1)
#endif
  REMOVE(0)
#if NT > 1
  REMOVE(1)
#endif
#if NT > 2
  REMOVE(2)
#endif
  od;
noted: atomic { E(r,y).told1 = false; E(r,y).err = true; r = 0; y = 0; goto end }
}

#ifdef SWEEP
/* A later incarnation of broker 0 removes what the dead one left. */
#define DONE(q, i) (P[q].last < i || E(q,i).own != 0 || E(q,i).sealed)
proctype sweep() {
#ifndef J10
  fence[0] = true;
#endif
  atomic { (DONE(0,1) && DONE(0,2) && DONE(0,3)
#if NP > 1
           && DONE(1,1) && DONE(1,2)
#endif
           ) -> skip }
#ifdef J10
  fence[0] = true;
#endif
  atomic { J[0].gone = ISSUED(0); inv() }
}
#endif
proctype net() {
  byte i, j;
end: do
  :: atomic { J[0].srv != ISSUED(0) -> J[0].srv = ISSUED(0) }
#if NO > 1
  :: atomic { J[1].srv != ISSUED(1) -> J[1].srv = ISSUED(1) }
#endif
#if NO > 2
  :: atomic { J[2].srv != ISSUED(2) -> J[2].srv = ISSUED(2) }
#endif
  :: atomic { E(0,1).srv < E(0,1).is -> E(0,1).srv++ }
#if NO > 1
  :: atomic { E(0,2).srv < E(0,2).is -> E(0,2).srv++ }
  :: atomic { E(0,3).srv < E(0,3).is -> E(0,3).srv++ }
#endif
#if NP > 1
  :: atomic { E(1,1).srv < E(1,1).is -> E(1,1).srv++ }
#if NO > 1
  :: atomic { E(1,2).srv < E(1,2).is -> E(1,2).srv++ }
#endif
#endif
  :: atomic { crashes < CRASHES -> crashes++;
       i = 0; do :: i < NB -> J[i].srv = J[i].dur; i++ :: else -> break od;
       j = 0; do :: j < NP -> i = 1; do :: i <= MAXE -> back1(j, i); i++ :: else -> break od; j++ :: else -> break od;
       i = 0; j = 0; inv() }
  od }
init { byte i, j; atomic {
  j = 0; do :: j < NP -> E(j,1).own = 0; E(j,1).maybe = true; P[j].last = 1; P[j].cur[0] = true; op[j] = 1; j++ :: else -> break od;
  run net();
#ifdef SWEEP
  run sweep();
#endif
 
#ifdef SPLIT
  run take(1, 0); run take(2, 1); c1 = true;    /* one claimant a partition, no move: NP=1 has the rest */
#else
  i = 0; do :: i < NB -> j = 0; do :: j < NP -> run take(i, j); j++ :: else -> break od; i++ :: else -> break od;
#endif
  i = 0; do :: i < NO -> run tick(i); run back(i); i++ :: else -> break od;
  i = 0; j = 0 } }
