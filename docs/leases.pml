/*
 * A model of leases, for the model checker spin: when the owner of a hold stops writing to its client, and when somebody
 * else may end the hold. One organization, one PostgreSQL. Node A has a streamed request. The heir is the next process on
 * A's data directory. Node B serves other requests of the organization and recovers holds. docs/ledger.md describes what it
 * shows; test/model.test.ts explores it, and shows that each of its broken variants fails.
 *
 * A transaction is one step here: docs/ledger.pml shows that its locks keep transactions in order. A
 * message to the store and its answer are steps of their own. Between any two steps anything else may happen: a cut of the
 * network, a suspension, a death, a crash of the store, a clock that is set.
 *
 * Time passes in ticks of one renewal interval. Whatever a process does within an interval while it runs and is connected
 * is done before the next tick: its renewal, its checks, its settlements. A process that is suspended or cut off lets any
 * number of ticks pass. Ages stop at the last value that a rule compares with.
 *
 * Limits: one request, one or two failures of each kind, and no node that is suspended between the test of its lease and
 * the write that follows. The last byte is not tested: its settlement is durable, so that it can at most be booked late.
 *
 * Broken on purpose: -DNO_FENCE, -DFENCE_BY_TIMER, -DFENCE_MONOTONIC, -DFENCE_WALL, -DLEASE_FROM_ANSWER, -DCUT_UNSETTLED,
 * -DRECOVER_AT_LIFE, -DRECOVER_UNSEEN, -DRECOVER_UNREACHED, -DCLAIM_IGNORED, -DTAKE_UNREPLAYED, -DTAKE_UNWAITED,
 * -DRENEW_UNTESTED, -DREMAKE_NOTHING, -DLATE_FORGOTTEN.
 */

/* How often each failure may happen in a run. */
#ifndef CUTS
#define CUTS 0     /* A, and its heir, cannot reach the store */
#endif
#ifndef OUTAGES
#define OUTAGES 0  /* B cannot reach the store; together with a cut, the store is away */
#endif
#ifndef SUSPENSIONS
#define SUSPENSIONS 0
#endif
#ifndef KILLS
#define KILLS 0    /* of A; a heir may start afterwards */
#endif
#ifndef CRASHES
#define CRASHES 0  /* of the store */
#endif
#ifndef JUMPS
#define JUMPS 0    /* of the store's clock, ahead, as far as any rule looks */
#endif
#ifndef SETBACKS
#define SETBACKS 0 /* of A's wall clock, so far that it tells no age any more; not together with a suspension, which the monotonic clock does not see */
#endif
#ifndef LOCKS
#define LOCKS 0    /* the lock of A's spool is free while A lives; A stays connected then */
#endif

/* In ticks. 90 % of a life is rounded to the tick before its end. */
#define LIFE 3
#define FENCE 2    /* src/ledger/lease.ts: OVER_FROM */
#define RECOVERY 4
#define DUE (LIFE + RECOVERY)
#define AWAITED 2  /* src/ledger/recovery.ts: RENEWALS_AWAITED */

#define CREDITS 3
#define MOST 2

#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* States of a hold. */
#define NONE 0
#define OPEN 1
#define CHARGED 2
#define RELEASED 3
#define RECOVERED 4

/* Transitions. */
#define HOLD 1
#define RENEW 2
#define SETTLE 3
#define RELEASE 4

/* A's request. */
#define NEW 0
#define ASKING 1
#define RUNNING 2
#define SETTLING 3
#define SPOOLED 4 /* its settlement is in the spool, and its last byte has not left */
#define ENDED 5

/* A message to the store. An orphan is one for which no process waits any more. It may still be booked. */
#define EMPTY 0
#define SENT 1
#define BOOKED 2
#define REFUSED 3
#define ORPHAN 4

/* What a sighting is of: the hold's present expiry, or the one that a crash of the store would bring back. */
#define NOTHING 0
#define PRESENT 1
#define EARLIER 2

#define B 0
#define HEIR 1

typedef Books {
  unsigned state : 3;
  unsigned amount : 2;
  unsigned checkpoint : 2;
  unsigned age : 3;       /* by the store's clock, since the hold was made or renewed */
  unsigned costs : 2;
  unsigned shortfall : 2;
  unsigned available : 2;
  unsigned others : 2     /* spent by B's requests, all delivered whole */
}
Books books;
Books disk;               /* what a crash of the store leaves */
bit isNewer;              /* the expiry is not on the disk yet */

bit isDead, isSuspended, isCut, isAway; /* A is dead, is suspended, is cut off; B is cut off */
unsigned cuts : 2, outages : 2, suspensions : 2, crashes : 2;
bit jumps, setbacks, isLockLost;

typedef Message {
  unsigned kind : 3;
  unsigned status : 3;
  unsigned tokens : 2;
  unsigned monotonic : 2; /* ticks since it was queued, by A's clocks */
  unsigned wall : 2
}
Message holds, durable;   /* one each in flight: the server may still know of one when the queue has sent the next */

unsigned phase : 3;
unsigned promised : 2;
unsigned delivered : 2;
unsigned monotonic : 2;   /* age of the lease, by A's clocks */
unsigned wall : 2;
bit isLeaseEnded, isRenewed, isWhole;
unsigned spooled : 3;     /* the entry in A's spool: SETTLE, RELEASE or 0 */

unsigned heir : 2;        /* 0: none; 1: has the lock of A's spool; 2: has booked it */
unsigned heirWaits : 2;
typedef Watch {
  unsigned sighting : 2;
  unsigned unchanged : 2; /* ticks since the sighting */
  bit claim               /* on its way to the store */
}
Watch watch[2];           /* of B and of the heir */
unsigned reached : 2;     /* ticks since B can reach the store */

/* Auxiliary state, which no process knows. */
bit isComplete;           /* the client saw a complete answer */
bit owes;                 /* A ended the request and said that its settlement is durable */
bit isLost;               /* a crash took the hold, and no renewal has put all of it back */
bit isExcused;            /* B ended the hold after too long a cut, or a crash took it: there may be a shortfall */
bit isLong;               /* the cut was too long when B claimed the hold */
bit isWeak;               /* the store was away for both, or its clock jumped */
unsigned cut : 3;         /* ticks since A's directory was last connected, or since B was not either */

#define IS_UP (!isDead && !isSuspended)
#define IS_CONNECTED (IS_UP && !isCut)
#define HAS_HEIR (heir > 0 && !isCut)
#define MAX(a, b) ((a) > (b) -> (a) : (b))

/* src/ledger/lease.ts: share */
#if defined(FENCE_MONOTONIC)
#define AGE monotonic
#elif defined(FENCE_WALL)
#define AGE wall
#else
#define AGE MAX(monotonic, wall)
#endif
#ifdef NO_FENCE
#define IS_OVER isLeaseEnded
#else
#define IS_OVER (isLeaseEnded || AGE >= FENCE)
#endif
/* src/ledger/lease.ts: require */
#ifdef FENCE_BY_TIMER
#define MAY_WRITE !isLeaseEnded
#else
#define MAY_WRITE !IS_OVER
#endif
#ifdef RENEW_UNTESTED
#define MAY_RENEW (phase == RUNNING)
#else
#define MAY_RENEW (phase == RUNNING && !IS_OVER)
#endif

/* A clock that jumped, or a store that was away for all, leaves the sighting of a whole life: less than both together. One
 * tick less, because the last renewal may be a tick older than the cut. */
#define BOUND (isWeak -> LIFE - 1 : DUE - 1)

#define HELD (books.state == OPEN -> books.amount : 0)
#define IS_BOOKED (books.state == CHARGED && books.costs + books.shortfall == delivered)

inline check() {
  assert(books.available + HELD + books.costs + books.others == CREDITS);
  /* Nothing that was delivered whole, and nothing that A settled, is uncharged. Nothing is charged twice. */
  assert(!isComplete || spooled == SETTLE || IS_BOOKED);
  assert(!owes || spooled != 0 || IS_BOOKED || (delivered == 0 && books.costs == 0));
  assert(books.costs <= delivered);
  /* No shortfall while a cut is shorter than life and recovery, and no hold was lost. A request that neither the store nor
   * the spool took the settlement of was not delivered whole. */
  assert(books.shortfall == 0 || isExcused || (phase == ENDED && !owes));
  /* What was delivered whole exceeds what was granted by the recorded shortfall at the most. */
  assert(!isComplete || spooled != 0 || delivered + books.others <= CREDITS + books.shortfall)
}

inline copy(to, from) {
  to.state = from.state; to.amount = from.amount; to.checkpoint = from.checkpoint; to.age = from.age;
  to.costs = from.costs; to.shortfall = from.shortfall; to.available = from.available; to.others = from.others
}
/* A durable commit takes all before it to the disk. The others reach it within a tick. */
inline flush() {
  copy(disk, books);
  isNewer = 0;
  if
  :: watch[B].sighting == EARLIER -> watch[B].sighting = NOTHING; watch[B].unchanged = 0
  :: else
  fi;
  if
  :: watch[HEIR].sighting == EARLIER -> watch[HEIR].sighting = NOTHING; watch[HEIR].unchanged = 0
  :: else
  fi
}
inline outdate(who) {
  if
  :: watch[who].sighting == PRESENT && !isNewer -> watch[who].sighting = EARLIER
  :: watch[who].sighting == PRESENT && isNewer -> watch[who].sighting = NOTHING; watch[who].unchanged = 0
  :: else
  fi
}
inline extend() { outdate(B); outdate(HEIR); isNewer = 1; books.age = 0 }
inline reserve(most) {
  books.state = OPEN;
  books.amount = MIN(most, books.available);
  books.available = books.available - books.amount;
  extend()
}

/* src/credits/holds.ts: charge, and src/credits/holds.ts: settleLate, which books the difference to what was charged */
inline charge(cost, ending) {
  if
  :: books.state == OPEN -> books.available = books.available + books.amount
  :: else -> books.available = books.available + books.costs
  fi;
  books.costs = MIN(cost, books.available);
  books.available = books.available - books.costs;
  books.shortfall = cost - books.costs;
  if
  :: books.shortfall > 0 && isLost -> isExcused = 1
  :: else
  fi;
  books.state = ending; books.amount = 0; books.checkpoint = 0; books.age = 0;
  flush()
}
/* src/credits/holds.ts: settle, src/credits/holds.ts: release */
inline end(verb, cost) {
  if
#ifdef LATE_FORGOTTEN
  :: verb == SETTLE && (books.state == OPEN || books.state == NONE) -> charge(cost, CHARGED)
#else
  :: verb == SETTLE && (books.state == OPEN || books.state == NONE || books.state == RECOVERED) -> charge(cost, CHARGED)
#endif
  :: verb == RELEASE && (books.state == OPEN || books.state == NONE) ->
    if
    :: books.state == OPEN -> books.available = books.available + books.amount
    :: else
    fi;
    books.state = RELEASED; books.amount = 0; books.checkpoint = 0; books.age = 0;
    flush()
  :: else
  fi
}
inline replay() { end(spooled, delivered); spooled = 0 }
inline clear(message) {
  message.kind = 0; message.status = EMPTY; message.tokens = 0; message.monotonic = 0; message.wall = 0
}
inline abandon(message) {
  message.monotonic = 0; message.wall = 0;
  if
  :: message.status == SENT -> message.status = ORPHAN
  :: message.status == BOOKED || message.status == REFUSED -> clear(message)
  :: else
  fi
}
inline forget() { phase = ENDED; monotonic = 0; wall = 0; isLeaseEnded = 0; isRenewed = 0; isWhole = 0 }
inline conclude() {
  owes = 1;
  if
  :: isWhole -> isComplete = 1
  :: else
  fi;
  forget()
}
#define AWAITS(message) (message.status == SENT || message.status == BOOKED || message.status == REFUSED)
#define IS_ON_ITS_WAY(message) (message.status == SENT || message.status == ORPHAN)

/* Whatever has to be done within a tick is done. */
#define IS_A_DONE (!IS_UP || ((phase == RUNNING || phase == ENDED || phase == NEW) && !AWAITS(holds) && !AWAITS(durable) && \
  !(phase == RUNNING && IS_OVER) && (isCut || (spooled == 0 && (phase != RUNNING || isRenewed)))))
#ifdef TAKE_UNREPLAYED
#define IS_HEIR_DONE 1
#else
#define IS_HEIR_DONE (!HAS_HEIR || heir == 2)
#endif

inline grow(ticks, most) {
  if
  :: ticks < most -> ticks = ticks + 1
  :: else
  fi
}
inline tick() {
  /* 6: every connected, running process has its hold, or what credits could make of it after a crash. */
  assert(!IS_CONNECTED || phase != RUNNING || (books.state == OPEN && (books.amount == promised || isLost)));
  flush();
  if
  :: books.state == OPEN -> grow(books.age, DUE); disk.age = books.age
  :: else
  fi;
  if
  :: phase == RUNNING || phase == SETTLING ->
    if
    :: !setbacks -> grow(wall, FENCE)
    :: else
    fi;
    if
    :: !isSuspended -> grow(monotonic, FENCE)
    :: else
    fi
  :: else
  fi;
  if
  :: AWAITS(holds) ->
    if
    :: !setbacks -> grow(holds.wall, FENCE)
    :: else
    fi;
    if
    :: !isSuspended -> grow(holds.monotonic, FENCE)
    :: else
    fi
  :: else
  fi;
  isRenewed = 0;
  if
  :: watch[B].sighting != NOTHING -> grow(watch[B].unchanged, LIFE)
  :: else
  fi;
  if
  :: watch[HEIR].sighting != NOTHING -> grow(watch[HEIR].unchanged, AWAITED)
  :: else
  fi;
  if
  :: isAway -> reached = 0
  :: else -> grow(reached, LIFE)
  fi;
  if
  :: heir == 2 -> grow(heirWaits, AWAITED)
  :: else
  fi;
  if
  :: IS_CONNECTED || HAS_HEIR -> cut = 0
  :: else ->
    if
    :: isAway -> isWeak = 1; cut = 0
    :: else -> grow(cut, DUE)
    fi
  fi
}

#ifdef RECOVER_AT_LIFE
#define IS_DUE (books.age >= LIFE)
#else
#define IS_DUE (books.age >= DUE)
#endif
#ifdef RECOVER_UNSEEN
#define IS_UNCHANGED 1
#else
#define IS_UNCHANGED (watch[B].unchanged >= LIFE)
#endif
#ifdef RECOVER_UNREACHED
#define IS_REACHED 1
#else
#define IS_REACHED (reached >= LIFE)
#endif
#ifdef TAKE_UNWAITED
#define HAS_WAITED 1
#else
#define HAS_WAITED (heirWaits >= AWAITED && watch[HEIR].unchanged >= AWAITED)
#endif
/* src/credits/holds.ts: isEnded */
#ifdef CLAIM_IGNORED
#define IS_CLAIM_TRUE(who) 1
#else
#define IS_CLAIM_TRUE(who) (watch[who].sighting == PRESENT && (who == HEIR || IS_DUE))
#endif

/* src/credits/holds.ts: expire, which charges what the last renewal told of */
inline expire(who) {
  watch[who].claim = 0;
  if
  :: books.state == OPEN && IS_CLAIM_TRUE(who) ->
    assert(who == HEIR || books.age >= LIFE); /* B ends no hold within its life */
    if
    :: who == B && isLong -> isExcused = 1
    :: else
    fi;
    charge(books.checkpoint, RECOVERED)
  :: else
  fi;
  if
  :: who == B -> isLong = 0
  :: else
  fi;
  check()
}
inline look(who) { watch[who].sighting = PRESENT; watch[who].unchanged = 0 }

init {
  d_step { books.available = CREDITS; disk.available = CREDITS; reached = LIFE };
  do
  /* ---- A */
  /* src/ledger/ledger.ts: hold */
  :: d_step { IS_CONNECTED && phase == NEW && holds.status == EMPTY -> phase = ASKING; holds.kind = HOLD; holds.status = SENT }
  /* src/ledger/hold-renewal.ts: start. The lease is tested first: after a suspension it must not begin again. */
  :: d_step { IS_CONNECTED && (MAY_RENEW || phase == SETTLING) && !isRenewed && holds.status == EMPTY ->
      holds.kind = RENEW; holds.status = SENT; holds.tokens = delivered; isRenewed = 1 }
  :: d_step { IS_CONNECTED && (holds.status == BOOKED || holds.status == REFUSED) ->
      if
      :: holds.kind == HOLD && holds.status == REFUSED -> forget()
      :: holds.kind == HOLD && holds.status == BOOKED ->
        /* src/ledger/hold-renewal.ts: track */
        phase = RUNNING; promised = holds.tokens; monotonic = holds.monotonic; wall = holds.wall
      :: holds.kind == RENEW && (phase == RUNNING || phase == SETTLING) && holds.status == REFUSED -> isLeaseEnded = 1
      :: holds.kind == RENEW && (phase == RUNNING || phase == SETTLING) && holds.status == BOOKED ->
        /* src/ledger/lease.ts: renew */
#ifdef LEASE_FROM_ANSWER
        monotonic = 0; wall = 0
#else
        monotonic = holds.monotonic; wall = holds.wall
#endif
      :: else
      fi;
      clear(holds) }
  /* The connection is lost. A hold that may have been booked is released. */
  :: d_step { IS_UP && isCut && AWAITS(holds) ->
      if
      :: holds.kind == HOLD -> phase = SETTLING
      :: holds.kind == RENEW -> isRenewed = 0 /* it is due again once A is connected */
      fi;
      abandon(holds) }
  /* src/gateway/deliver.ts: passOn. The test and the write are one step: nothing runs between them. */
  :: d_step { IS_UP && phase == RUNNING && MAY_WRITE && delivered < promised ->
      assert(books.state == OPEN || isLost);
      delivered = delivered + 1;
      check() }
  :: d_step { IS_UP && phase == RUNNING && MAY_WRITE && delivered > 0 ->
      assert(books.state == OPEN || isLost);
      phase = SETTLING; isWhole = 1 }
  /* src/ledger/lease.ts: check, and other reasons to end early, such as a client that disconnects. */
  :: d_step { IS_UP && phase == RUNNING ->
#ifdef CUT_UNSETTLED
      if
      :: IS_OVER -> conclude()
      :: else -> phase = SETTLING
      fi;
      check()
#else
      phase = SETTLING
#endif
    }
  /* src/ledger/ledger.ts: end */
  :: d_step { IS_CONNECTED && phase == SETTLING && durable.status == EMPTY ->
      durable.kind = (delivered > 0 -> SETTLE : RELEASE); durable.status = SENT }
  :: d_step { IS_CONNECTED && durable.status == BOOKED -> clear(durable); conclude(); check() }
  /* src/ledger/ledger.ts: toSpool */
  :: d_step { IS_UP && isCut && phase == SETTLING ->
      abandon(durable);
      spooled = (delivered > 0 -> SETTLE : RELEASE); phase = SPOOLED }
  /* The last byte, or the error. The lease is not tested again: the settlement is durable. */
  :: d_step { IS_UP && phase == SPOOLED -> conclude(); check() }
  /* Its disk fails, too: the answer ends in an error, and the hold is left to the sweeper. */
  :: d_step { IS_UP && isCut && phase == SETTLING -> abandon(durable); forget(); check() }
  /* src/ledger/spool.ts: replay */
  :: d_step { IS_CONNECTED && spooled != 0 -> replay(); check() }
  /* Rule 4: its own overdue hold, which no request and no entry names. */
  :: d_step { IS_CONNECTED && phase == ENDED && spooled == 0 && books.state == OPEN && books.age >= LIFE ->
      charge(books.checkpoint, RECOVERED); check() }

  /* ---- The store */
  :: d_step { IS_ON_ITS_WAY(holds) ->
      if
      /* src/credits/holds.ts: hold */
      :: holds.kind == HOLD && books.state == NONE && books.available > 0 ->
        reserve(MOST);
        holds.tokens = books.amount;
        holds.status = (holds.status == SENT -> BOOKED : EMPTY)
      /* src/credits/holds.ts: renew */
      :: holds.kind == RENEW && books.state == OPEN ->
        extend();
        books.checkpoint = holds.tokens;
        holds.status = (holds.status == SENT -> BOOKED : EMPTY)
      :: holds.kind == RENEW && books.state == NONE ->
#ifndef REMAKE_NOTHING
        reserve(promised);
        books.checkpoint = holds.tokens;
        if
        :: books.amount == promised -> isLost = 0
        :: else
        fi;
#endif
        holds.status = (holds.status == SENT -> BOOKED : EMPTY)
      :: else -> holds.status = (holds.status == SENT -> REFUSED : EMPTY)
      fi;
      if
      :: holds.status == EMPTY -> clear(holds)
      :: else
      fi;
      check() }
  :: d_step { IS_ON_ITS_WAY(durable) ->
      end(durable.kind, delivered);
      if
      :: durable.status == SENT -> durable.status = BOOKED
      :: else -> clear(durable)
      fi;
      check() }
  /* An orphan is lost with its connection. */
  :: d_step { holds.status == ORPHAN -> clear(holds) }
  :: d_step { durable.status == ORPHAN -> clear(durable) }

  /* ---- The heir */
  /* src/ledger/spool.ts: takeOver */
  :: d_step { heir == 0 && (isDead || isLockLost) -> heir = 1 }
#ifdef TAKE_UNREPLAYED
  :: d_step { HAS_HEIR && heir == 1 -> heir = 2 }
  :: d_step { HAS_HEIR && spooled != 0 -> replay(); check() }
#else
  /* src/ledger/recovery.ts: endOwner */
  :: d_step { HAS_HEIR && heir == 1 ->
      if
      :: spooled != 0 -> replay()
      :: else
      fi;
      heir = 2; check() }
#endif
  /* src/ledger/recovery.ts: claims. Looks and claims of the heir and of B. */
  :: d_step { HAS_HEIR && heir == 2 && !watch[HEIR].claim && books.state == OPEN && watch[HEIR].sighting != PRESENT -> look(HEIR) }
  :: d_step { HAS_HEIR && heir == 2 && !watch[HEIR].claim && books.state == OPEN && watch[HEIR].sighting == PRESENT && HAS_WAITED ->
      watch[HEIR].claim = 1 }
  :: d_step { watch[HEIR].claim -> expire(HEIR) }

  /* ---- B */
  :: d_step { !isAway && books.available > 0 -> books.others = books.others + books.available; books.available = 0; flush() }
  :: d_step { !isAway && !watch[B].claim && books.state == OPEN && books.age >= LIFE && watch[B].sighting != PRESENT -> look(B) }
  /* src/ledger/recovery.ts: afterExpiryMs */
  :: d_step { !isAway && !watch[B].claim && books.state == OPEN && watch[B].sighting == PRESENT && IS_DUE && IS_UNCHANGED && IS_REACHED ->
      watch[B].claim = 1; isLong = (cut >= BOUND) }
  :: d_step { watch[B].claim -> expire(B) }

  /* ---- Time and failures */
  :: d_step { IS_A_DONE && IS_HEIR_DONE -> tick() }
  :: d_step { !isCut && cuts < CUTS && !isLockLost -> isCut = 1; cuts = cuts + 1 }
  :: d_step { isCut -> isCut = 0 }
  :: d_step { !isAway && outages < OUTAGES -> isAway = 1; outages = outages + 1; reached = 0 }
  :: d_step { isAway -> isAway = 0 }
  :: d_step { IS_UP && suspensions < SUSPENSIONS && !isLockLost && !setbacks -> isSuspended = 1; suspensions = suspensions + 1 }
  :: d_step { isSuspended -> isSuspended = 0 }
  :: d_step { IS_UP && !setbacks && SETBACKS > 0 && suspensions == 0 -> setbacks = 1; wall = 0; holds.wall = 0 }
  /* What is in flight may still be booked. */
  :: d_step { !isDead && KILLS > 0 && !isLockLost ->
      isDead = 1; isSuspended = 0;
      abandon(holds); abandon(durable); forget();
      check() }
  :: d_step { crashes < CRASHES ->
      crashes = crashes + 1;
      if
      :: books.state == OPEN && disk.state == NONE -> isLost = 1
      :: else
      fi;
      if
      :: watch[B].sighting == EARLIER -> watch[B].sighting = PRESENT
      :: watch[B].sighting == PRESENT && isNewer -> watch[B].sighting = NOTHING; watch[B].unchanged = 0
      :: else
      fi;
      if
      :: watch[HEIR].sighting == EARLIER -> watch[HEIR].sighting = PRESENT
      :: watch[HEIR].sighting == PRESENT && isNewer -> watch[HEIR].sighting = NOTHING; watch[HEIR].unchanged = 0
      :: else
      fi;
      copy(books, disk);
      isNewer = 0; isRenewed = 0;
      check() }
  :: d_step { jumps < JUMPS && books.state == OPEN ->
      jumps = jumps + 1; isWeak = 1; books.age = DUE;
      if
      :: disk.state == OPEN -> disk.age = DUE
      :: else
      fi }
  :: d_step { LOCKS > 0 && !isLockLost && IS_CONNECTED && cuts == 0 && suspensions == 0 -> isLockLost = 1 }
  /* Nothing is left to be done. */
  :: d_step { phase == ENDED && spooled == 0 && holds.status == EMPTY && durable.status == EMPTY && books.state != OPEN &&
      books.available == 0 -> check() } -> break
  od
}
