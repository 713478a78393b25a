/* crash.pml - what a SEAL may name when the server forgets what nobody made durable (docs/adr/0010).
   One partition, one file an epoch. A byte is issued by its writer, then on the server (others read it), then durable. The server
   may crash CRASHES times: of every file only what is durable is left. A writer that lives sends again what was lost; one that
   died does not (its bytes simply never land again).
   Run:  spin -a crash.pml && gcc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=4000 -o pan pan.c && ./pan -E -m1000000 -w25
   Property: whatever somebody was told of (an ack, a success for a retried batch, a read) is there after every crash.

   The protocol: an owner has at most W batches in a file that its sync did not confirm yet. So all but the last W batches of what a
   claimant scans are durable. The last W it copies into a file of its own, syncs that, and its SEAL cuts the old file in front of
   them and names the copy. A seal at an acked length (own epoch, planned move) needs no copy: its bytes are synced.
   -DLOCAL: the volume is the machine's own. A crash ends the claimant too, so it cannot fall between scan and seal; the claimant's
   fdatasync covers bytes that others wrote.

   Mutants:
     SYNC     no copy; scan, sync of the old file that does cover others' bytes, SEAL (remote server: a crash may fall in between)
     SYNC2    the same, and scanned again after the sync (with -DCRASHES=2)
     C1       SEAL over scanned bytes, nothing made durable
     C1D      the same and reads past the last ack never happen: the success for a retried batch alone is enough (an ACK is lost)
     C1R      the same and no success for retried batches: reads alone
     C3       SEAL is linked before the copy is synced
     C4       the owner has W + 1 batches unconfirmed
   C1N is no mutant: sealed over bytes that may vanish, but nobody is ever told of bytes past the old owner's acks. It holds: the
   gap needs a duplicate or a read.
   Results (full searches, 0 errors; Spin 6.5.2, one core): 3 brokers 1 125 617 states, 3 s | -DCRASHES=2 1 786 246, 4 s | -DMAXB=3 -DW=2 -DNB=2 3 237 201, 7 s | -DLOCAL 869 661, 2 s |
     -DC1N 701 593, 2 s. States until a mutant violates: SYNC 58 961, SYNC2 103 076, C1 40 045, C1D 40 045, C1R 40 045, C3 21 998, C4 216 305 */
#ifndef NB
#define NB 3
#endif
#ifndef MAXE
#define MAXE 3
#endif
#ifndef MAXB
#define MAXB 2
#endif
#ifndef W
#define W 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#if defined(C1D) || defined(C1R) || defined(C1N)
#define C1
#endif
#if defined(C1R) || defined(C1N)
#define NODUP
#endif
#if defined(C1D) || defined(C1N)
#define NOREAD
#endif
#if defined(C1) || defined(SYNC) || defined(SYNC2) || defined(LOCAL)
#define NOCOPY
#endif
#ifdef C4
#define UNCONFIRMED (W+1)
#else
#define UNCONFIRMED W
#endif

typedef Ep {
  unsigned own : 2; bool sealed; unsigned seal : 2; bool maybe;
  unsigned cut : 2;                /* the old file counts up to here, the rest is in the copy */
  unsigned copy : 2;               /* 0 none, 1 on the server, 2 durable */
  unsigned is : 2; unsigned srv : 2; unsigned dur : 2;
  unsigned acked : 2;              /* ghost: by its owner */
  unsigned told : 2;               /* ghost: length anybody was told of */
};
Ep e[4]; unsigned last : 2;
bool cur[NB];                      /* the next name is free as far as b has listed (see chain.pml) */
bool fence[NB];
unsigned cp0 : 2; unsigned cp1 : 2; unsigned cp2 : 2;      /* the copy a claimant is making, as Ep.copy */
unsigned crashes : 2; bool c1;

#define ALLSEALED(m) ((m<2 || e[1].sealed) && (m<3 || e[2].sealed))
#define FIRSTOPEN(m) ((m>1 && !e[1].sealed) -> 1 : ((m>2 && !e[2].sealed) -> 2 : 0))
#define TURN (b == 0 || (last > 0 && (b == 1 || c1)))       /* brokers are alike */
#define CP (b==0 -> cp0 : (b==1 -> cp1 : cp2))
inline setcp(v) { if :: b==0 -> cp0 = v :: b==1 -> cp1 = v :: else -> cp2 = v fi }
#define FROMFILE(i) ((e[i].sealed && e[i].cut < e[i].told) -> e[i].cut : e[i].told)
#define THERE(i) (e[i].srv >= FROMFILE(i) && (!e[i].sealed || e[i].told <= e[i].cut || e[i].copy > 0))
#define ACKOK(i) (!e[i].sealed || e[i].acked <= e[i].seal)
inline inv() { assert(ACKOK(1) && ACKOK(2) && ACKOK(3)); assert(THERE(1) && THERE(2) && THERE(3)) }
inline took() { if :: b != 0 -> cur[0] = false :: else fi; if :: b != 1 -> cur[1] = false :: else fi;
#if NB > 2
  if :: b != 2 -> cur[2] = false :: else fi
#endif
}

proctype node(byte b) {
  unsigned my : 2; unsigned x : 2; unsigned L : 2; unsigned from : 2;
idle:
  atomic { last < MAXE && TURN -> my = 0; x = 0; L = 0; from = 0; cur[b] = true }
  atomic {                                                          /* link CLAIM */
    if :: !cur[b] || last >= MAXE -> goto idle
       :: else -> took();
          if :: last > 0 -> e[last].maybe = ALLSEALED(last) :: else fi;
          last++; my = last; e[my].own = b; c1 = c1 || b==1; x = FIRSTOPEN(my);
          if :: x == 0 -> goto serve :: else fi
    fi }
recover:
  if
  :: e[x].own == b -> atomic { L = e[x].acked; from = L; goto sealx }
  :: e[x].own != b && !e[x].maybe -> atomic { L = 0; from = 0; goto sealx }
  :: e[x].own != b && e[x].maybe -> fence[e[x].own] = true
  fi;
#if defined(LOCAL)
  atomic { L = e[x].srv; e[x].dur = e[x].srv; from = L }
#elif defined(SYNC)
  atomic { L = e[x].srv; from = L }
  e[x].dur = e[x].srv;
#elif defined(SYNC2)
  atomic { L = e[x].srv; from = L }
  e[x].dur = e[x].srv;
  atomic { if :: e[x].srv < L -> L = e[x].srv; from = L :: else fi }
#elif defined(C1)
  atomic { L = e[x].srv; from = L }
#else
  atomic { L = e[x].srv; from = (L > W -> L - W : 0) }   /* read into memory */
  if :: L == from -> goto sealx :: else fi;
copying:
  setcp(1);
#ifndef C3
  atomic { if :: CP == 0 -> goto copying                  /* the server crashed: the client writes again */
              :: else -> setcp(2) fi }
#endif
#endif
sealx:
  atomic {
    if :: cur[b] -> took(); assert(!e[x].sealed); e[x].sealed = true; e[x].seal = L; e[x].cut = from; e[x].copy = CP; inv()
       :: else -> cur[b] = true; if :: last != my -> setcp(0); goto idle :: else fi
    fi;
    setcp(0);
    x = FIRSTOPEN(my); L = 0; from = 0;
    if :: x == 0 -> skip :: else -> goto recover fi }
serve:
  if
  :: atomic { e[my].is < MAXB && e[my].is - e[my].acked < UNCONFIRMED -> e[my].is++; goto serve }
  :: atomic { e[my].acked < e[my].is -> skip }
  :: goto selfseal
#ifndef NODUP
  :: atomic { my > 1 && !fence[b] -> x = my - 1; e[x].told = e[x].seal; inv(); x = 0; goto serve }   /* success for a retried batch */
#endif
#ifndef NOREAD
  :: atomic { my > 1 -> x = my - 1; e[x].told = e[x].seal; inv(); x = 0; goto serve }                 /* read */
#endif
  fi;
  if                                                               /* fdatasync */
  :: atomic { e[my].srv == e[my].is -> e[my].dur = e[my].srv; L = e[my].is }
  :: goto selfseal
  fi;
  atomic { if :: fence[b] -> my = 0; L = 0; goto fenced :: else fi }
  atomic { e[my].acked = L; L = 0;
           if :: e[my].told < e[my].acked -> e[my].told = e[my].acked :: else fi; inv(); goto serve }
selfseal:
  atomic { L = 0;
    if :: cur[b] -> took(); assert(!e[my].sealed); e[my].sealed = true; e[my].seal = e[my].acked; e[my].cut = e[my].acked; inv()
       :: else fi; goto idle }
fenced: skip
}

proctype net() {                   /* write-back, at any time, for ever; the server may also flush by itself */
end: do
  :: atomic { e[1].srv < e[1].is -> e[1].srv++ }
  :: atomic { e[2].srv < e[2].is -> e[2].srv++ }
  :: atomic { e[3].srv < e[3].is -> e[3].srv++ }
  :: atomic { crashes < CRASHES -> crashes++; e[1].srv = e[1].dur; e[2].srv = e[2].dur; e[3].srv = e[3].dur;
              if :: e[1].copy == 1 -> e[1].copy = 0 :: else fi; if :: e[2].copy == 1 -> e[2].copy = 0 :: else fi;
              if :: cp0 == 1 -> cp0 = 0 :: else fi; if :: cp1 == 1 -> cp1 = 0 :: else fi; if :: cp2 == 1 -> cp2 = 0 :: else fi;
              inv() }
  od }
init { byte i; atomic { run net(); i = 0; do :: i < NB -> run node(i); i++ :: else -> break od; i = 0 } }
