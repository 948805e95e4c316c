/*
 * A model of how credits move, for the model checker spin: two nodes with a request each, of one organization, on one
 * PostgreSQL. docs/ledger.md describes what it shows; test/model.test.ts explores it, and shows that each of its broken
 * variants fails.
 *
 * A step is named after what it stands for, as `file: name`. A transaction's lock, its write with its commit, and the
 * answer to the commit are steps of their own. Between any two steps anything else may happen: a step of another
 * transaction, the death of a node or of the store, the end of a hold's life.
 *
 * This model has no time. It assumes that no process can end a hold before its owner has stopped writing to the client, however
 * long the owner is cut off. docs/leases.pml shows that.
 *
 * Broken on purpose: -DSETTLE_WITHOUT_STATE, -DREAD_BEFORE_LOCK, -DNO_LOCK, -DEXPIRE_UNTESTED, -DREPLAY_UNGUARDED,
 * -DLOCKS_UNORDERED, -DANSWER_FIRST, -DSETTLE_NOT_DURABLE, -DSETTLE_NEEDS_HOLD, -DRELEASE_WITHOUT_STATE,
 * -DRENEW_REVIVES, -DHOLD_UNGUARDED, -DSPOOL_EMPTIED_FIRST, -DRENEW_FORGETS, -DBUDGET_READ_FIRST, -DBUDGET_IGNORES_HELD,
 * -DBUDGET_OF_THE_END.
 */

#ifndef FAULTS
#define FAULTS 2   /* connections lost, before a transaction or between its commit and the answer to it */
#endif
#ifndef CRASHES
#define CRASHES 1  /* of the store */
#endif
#ifndef KILLS
#define KILLS 1    /* of either node */
#endif
#ifndef RENEWALS
#define RENEWALS 1 /* of the streamed request */
#endif

#ifndef TURNS
#define TURNS 0    /* 1: the budget's window ends and the next one begins, at any instant */
#endif
#ifndef BUDGET
#define BUDGET 3   /* the amount of the budget that covers both requests. 3: all credits, which binds no request */
#endif

/* Amounts in credits. A request asks for MOST and takes LEAST. The streamed one delivers PIECE, and comes to LITTLE or to
 * MUCH: less than the checkpoint, or more than the hold. The other comes to LITTLE. */
#define CREDITS 3
#define LEAST 1
#define MOST 2
#define PIECE 2
#define LITTLE 1
#define MUCH 3

#define MIN(a, b) ((a) < (b) -> (a) : (b))

/* A hold's state: src/credits/books.ts: HoldState. */
#define NONE 0
#define OPEN 1
#define CHARGED 2
#define RELEASED 3
#define EXPIRED 4

/* Transitions: src/credits/books.ts: Transition. A replay is a settlement or a release out of the spool. */
#define HOLD 1
#define RENEW 2
#define SETTLE 3
#define RELEASE 4
#define EXPIRE 5

/* A request, in its node's memory. */
#define NEW 0
#define HOLDING 1
#define RUNNING 2
#define ENDING 3
#define ENDED 4

/* What a client saw last. An error status charges nothing; a stream that was cut off charges what was delivered. */
#define NOTHING 0
#define COMPLETE 1
#define REFUSED 2
#define CUT_OFF 3

typedef Row {
  unsigned state : 3;
  unsigned amount : 3;
  unsigned checkpoint : 2;
  unsigned charged : 3;
  unsigned shortfall : 3;
  unsigned events : 2; /* how many */
  unsigned costs : 4;  /* of its events together */
  bit overdue;         /* its expiry has passed, by the store's clock */
  bit window           /* the one of its admission */
}
typedef Rows {
  Row hold[2];
  unsigned available : 4;
  unsigned held : 4;
  unsigned spent : 4;
  byte used[2] /* what requests of each window hold and have spent of the budget */
}

Rows committed; /* what a new snapshot sees */
Rows disk;      /* what a crash of the store leaves */
bit balanceLocked, budgetLocked;
unsigned epoch : 2; /* crashes of the store so far */
unsigned faults : 2 = FAULTS;
bit window; /* of the budget, by the store's clock */

bit life[2];   /* 1: the node was killed and started again */
unsigned kills : 2;
bit laneEnded[4];
typedef Request {
  unsigned phase : 3;
  unsigned promised : 2;  /* what its hold was answered with */
  unsigned delivered : 2; /* sent to the client so far */
  unsigned usage : 2;     /* what the whole answer comes to */
  unsigned saw : 2;
  unsigned spooled : 3;   /* the entry in its node's spool: SETTLE, RELEASE or 0 */
  unsigned renewals : 2;
  bit window;             /* what its hold was answered with */
  bit lost                /* ghost: the store's crash took its hold, and no renewal has put all of it back */
}
Request request[2]; /* request r runs on node r; request 0 is streamed and long enough to be renewed */
#define IS_STREAMED(r) (r == 0)

inline copyRow(to, from) {
  to.state = from.state; to.amount = from.amount; to.checkpoint = from.checkpoint; to.charged = from.charged;
  to.shortfall = from.shortfall; to.events = from.events; to.costs = from.costs; to.overdue = from.overdue;
  to.window = from.window
}
inline copyRows(to, from) {
  copyRow(to.hold[0], from.hold[0]); copyRow(to.hold[1], from.hold[1]);
  to.available = from.available; to.held = from.held; to.spent = from.spent;
  to.used[0] = from.used[0]; to.used[1] = from.used[1]
}

#define OPEN_AMOUNT(r) (committed.hold[r].state == OPEN -> committed.hold[r].amount : 0)
/* What a row counts in the budget. */
#define COUNTED(row) (row.state == OPEN -> row.amount : row.costs)
#define COUNTED_IN(w, r) (committed.hold[r].window == w -> COUNTED(committed.hold[r]) : 0)
#define SPENT_IN(w, r) (committed.hold[r].window == w && committed.hold[r].state != OPEN -> committed.hold[r].costs : 0)
#define ROOM(w) (committed.used[w] < BUDGET -> BUDGET - committed.used[w] : 0)
#define HAS_EVENT(r) (committed.hold[r].state == CHARGED || committed.hold[r].state == EXPIRED)
#define BOOKED(r) (committed.hold[r].state == CHARGED && \
  committed.hold[r].costs + committed.hold[r].shortfall == request[r].usage)

/* The invariants of docs/ledger.md, by their numbers, after every step that could break one. */
inline checkRequest(r) {
  /* 4, 7. The arrows themselves are checked by commit. */
  assert(HAS_EVENT(r) == (committed.hold[r].events > 0));
  assert(committed.hold[r].events < 2 || committed.hold[r].state == CHARGED);
  assert(!HAS_EVENT(r) || committed.hold[r].charged == committed.hold[r].costs);
  /* 5: charged exactly once, in the books or in the spool. An error charges nothing, and nothing charges more than was used. */
  assert(request[r].saw != COMPLETE || request[r].spooled == SETTLE || BOOKED(r));
  assert(request[r].saw != REFUSED || committed.hold[r].costs == 0);
  /* 6: a running request has all the credits that its hold was answered with. The only exception: a crash of the store
   * took its hold, and no renewal has made it again as far as credits reach. */
  assert(request[r].phase != RUNNING || request[r].lost ||
    (committed.hold[r].state == OPEN && committed.hold[r].amount == request[r].promised))
}
inline check() {
  /* 1, 2, 3, 6: amounts are unsigned and small, so that one that went below 0 is a large one here. */
  assert(committed.available <= CREDITS && committed.held <= CREDITS && committed.spent <= CREDITS);
  assert(committed.available + committed.held + committed.spent == CREDITS);
  assert(committed.held == OPEN_AMOUNT(0) + OPEN_AMOUNT(1));
  assert(committed.spent == committed.hold[0].costs + committed.hold[1].costs);
  /* A request counts in the window of its admission, whenever it ends. */
  assert(committed.used[0] == COUNTED_IN(0, 0) + COUNTED_IN(0, 1));
  assert(committed.used[1] == COUNTED_IN(1, 0) + COUNTED_IN(1, 1));
  checkRequest(0);
  checkRequest(1)
}

/* src/credits/holds.ts: charge */
inline charge(cost, to) {
  base = (row.state == OPEN -> row.amount : row.charged);
  front = MIN(base, cost);
  if
  :: row.state == OPEN -> held = held - row.amount
  :: else
  fi;
  /* src/credits/funds.ts: returnDraws */
  available = available + (base - front);
  /* src/credits/funds.ts: take */
  more = MIN(cost - front, available);
  available = available - more;
  spent = spent + (front + more) - row.charged;
  row.costs = row.costs + (front + more) - row.charged;
  row.events = row.events + 1;
  row.charged = front + more;
  row.shortfall = cost - row.charged;
  row.state = to;
  base = 0; front = 0; more = 0
}

/* src/credits/holds.ts: hold */
inline decideHold() {
  if
#ifndef HOLD_UNGUARDED
  :: row.state != NONE -> isHeld = (row.state == OPEN); amount = row.amount; counter = row.window
  :: row.state == NONE && available >= LEAST && room >= LEAST ->
#else
  :: available >= LEAST && room >= LEAST ->
#endif
    row.state = OPEN; row.overdue = 0; row.window = counter;
    row.amount = MIN(MOST, MIN(available, room));
    available = available - row.amount;
    held = held + row.amount;
    isHeld = 1; amount = row.amount
  :: else -> isHeld = 0
  fi
}

/* src/credits/holds.ts: renew */
inline decideRenew() {
  if
#ifdef RENEW_REVIVES
  :: row.state != NONE ->
#else
  :: row.state == OPEN ->
#endif
    row.state = OPEN; row.checkpoint = tokens; row.overdue = 0
#ifndef RENEW_FORGETS
  :: row.state == NONE ->
    row.state = OPEN; row.checkpoint = tokens; row.overdue = 0; row.window = counter;
    row.amount = MIN(request[r].promised, MIN(available, room));
    available = available - row.amount;
    held = held + row.amount
#endif
  :: else
  fi
}

#ifdef REPLAY_UNGUARDED
#define UNGUARDED_REPLAY 1
#else
#define UNGUARDED_REPLAY 0
#endif

/* src/credits/holds.ts: settle. A hold that is not there was lost with the store, and is charged like one of 0. */
inline decideSettle() {
  if
#ifdef SETTLE_NEEDS_HOLD
  :: row.state == OPEN || row.state == EXPIRED
#elif defined(SETTLE_WITHOUT_STATE)
  :: row.state != RELEASED
#else
  :: row.state == OPEN || row.state == EXPIRED || row.state == NONE || (replays && UNGUARDED_REPLAY)
#endif
    -> if
       :: row.state == NONE -> row.window = counter
       :: else
       fi;
       charge(tokens, CHARGED)
  :: else
  fi
}

/* src/credits/holds.ts: release */
inline decideRelease() {
  if
#ifdef RELEASE_WITHOUT_STATE
  :: row.state != NONE ->
#else
  :: row.state == OPEN ->
#endif
    held = held - row.amount; available = available + row.amount; row.state = RELEASED
  :: else
  fi
}

/* src/credits/holds.ts: expire */
inline decideExpire() {
  if
#ifdef EXPIRE_UNTESTED
  :: row.state == OPEN
#else
  :: row.state == OPEN && row.overdue
#endif
    -> charge(row.checkpoint, EXPIRED)
  :: else
  fi
}

inline forgetRow() {
  row.state = 0; row.amount = 0; row.checkpoint = 0; row.charged = 0; row.shortfall = 0; row.events = 0; row.costs = 0;
  row.overdue = 0; row.window = 0; available = 0; held = 0; spent = 0; room = 0; before = 0
}

/* The counter of the budget that a transition uses: a new hold's is that of the store's clock, all others' is recorded. */
inline readBudget() {
  counter = (kind == HOLD -> window : request[r].window);
#ifdef BUDGET_IGNORES_HELD
  room = BUDGET - MIN(BUDGET, SPENT_IN(counter, 0) + SPENT_IN(counter, 1))
#else
  room = ROOM(counter)
#endif
}

/* src/credits/budget-counters.ts: countInBudgets, with the transition's other writes. */
inline countInBudget() {
  before = committed.used[row.window];
  committed.used[row.window] = before - COUNTED(committed.hold[r]);
#ifdef BUDGET_OF_THE_END
  committed.used[(kind == SETTLE -> window : row.window)] =
    committed.used[(kind == SETTLE -> window : row.window)] + COUNTED(row);
#else
  committed.used[row.window] = committed.used[row.window] + COUNTED(row);
#endif
  /* No admission and no renewal raises what is used above the budget. A charge does so only above its hold. */
  assert(committed.used[row.window] <= before || committed.used[row.window] <= BUDGET ||
    ((kind == SETTLE || kind == EXPIRE) && row.charged > committed.hold[r].amount))
}
inline idle() { kind = 0; r = 0; tokens = 0; counter = 0; replays = 0; isHeld = 0; amount = 0; born = 0; era = 0; forgetRow() }

/* Its request has ended: its memory of it goes. */
inline endRequest(r, seen) {
  request[r].phase = ENDED; request[r].saw = seen;
  request[r].promised = 0; request[r].delivered = 0; request[r].renewals = 0; request[r].lost = 0;
  request[r].window = (request[r].spooled -> request[r].window : 0)
}

#define WAS_KILLED (life[node] != born)
#define IS_AWAITED (kind == HOLD || kind == SETTLE || kind == RELEASE)
#define STORE_DIED (epoch != era)
#define IS_OVERDUE(r) (committed.hold[r].state == OPEN && committed.hold[r].overdue)
#define LOOKS(r) (isDurable && node != r)
#define QUIET (laneEnded[0] && laneEnded[1] && request[0].spooled == 0 && request[1].spooled == 0 && \
  request[0].phase == ENDED && request[1].phase == ENDED && \
  committed.hold[0].state != OPEN && committed.hold[1].state != OPEN)

/* What waits for the lock does nothing else, so a queue takes up a transition when it can have the lock. Only an expiry is
 * looked for before. */
#ifdef NO_LOCK
#define IS_FREE 1
#define MAY_BEGIN 1
#elif defined(READ_BEFORE_LOCK) || defined(LOCKS_UNORDERED) || defined(BUDGET_READ_FIRST)
#define IS_FREE !balanceLocked
#define MAY_BEGIN 1
#else
#define IS_FREE !balanceLocked
#define MAY_BEGIN !balanceLocked
#endif

/* src/ledger/commit-queue.ts: CommitQueue. A node has one, with one batch of an organization in flight. Two processes stand
 * for it, so that the model also has a transaction of which the server still knows when its queue has sent the next. */
proctype CommitQueue(bit node; bit isDurable) {
  unsigned kind : 3, tokens : 2, amount : 2, available : 4, held : 4, spent : 4, base : 3, front : 3, more : 3, era : 2;
  unsigned room : 3, before : 4;
  bit r, replays, isHeld, born, counter;
  Row row;

choose:
  atomic {
    if
    /* src/ledger/ledger.ts: hold */
    :: MAY_BEGIN && !isDurable && (request[node].phase == NEW || request[node].phase == HOLDING) ->
      kind = HOLD; r = node; request[r].phase = HOLDING
    /* src/ledger/hold-renewal.ts: renew. What it carries may be older than what is delivered by now. */
    :: MAY_BEGIN && !isDurable && (request[node].phase == RUNNING || request[node].phase == ENDING) &&
      IS_STREAMED(node) && request[node].renewals < RENEWALS ->
      kind = RENEW; r = node;
      request[r].renewals = request[r].renewals + 1;
      if
      :: tokens = request[r].delivered
      :: request[r].delivered > 0
      fi
    /* src/ledger/ledger.ts: settle */
    :: MAY_BEGIN && isDurable && request[node].phase == RUNNING ->
      kind = SETTLE; r = node; request[r].phase = ENDING;
      if
      :: request[r].usage = LITTLE
      :: IS_STREAMED(r) -> request[r].usage = MUCH
      fi;
      tokens = request[r].usage
#ifdef ANSWER_FIRST
      ; request[r].saw = COMPLETE
#endif
    /* src/ledger/ledger.ts: release. Only where nothing was sent. */
    :: MAY_BEGIN && isDurable && request[node].phase == RUNNING && request[node].delivered == 0 ->
      kind = RELEASE; r = node; request[r].phase = ENDING
    :: MAY_BEGIN && isDurable && request[node].phase == ENDING ->
      r = node; tokens = request[r].usage;
      kind = (tokens > 0 -> SETTLE : RELEASE)
    /* src/ledger/spool.ts: replay. An entry is tried again, by this process or by the next one on its directory. */
    :: MAY_BEGIN && isDurable && request[node].spooled != 0 && request[node].phase == ENDED ->
      kind = request[node].spooled; r = node; replays = 1;
      tokens = (kind == SETTLE -> request[r].usage : 0)
#ifdef SPOOL_EMPTIED_FIRST
      ; request[r].spooled = 0
#endif
    /* src/ledger/sweeper.ts: sweep. A look without locks; one that is out of date comes to nothing under the lock, so that
     * one queue with such looks, at one hold, stands for all. */
    :: LOOKS(0) && IS_OVERDUE(0) -> kind = EXPIRE; r = 0; born = life[node]; goto begin
    :: MAY_BEGIN && isDurable && !LOOKS(0) && IS_OVERDUE(0) -> kind = EXPIRE; r = 0
    :: MAY_BEGIN && isDurable && IS_OVERDUE(1) -> kind = EXPIRE; r = 1
    /* The store cannot be reached for so long that the waiting requests fail. */
    :: !isDurable && request[node].phase == NEW && faults > 0 ->
      faults = faults - 1; kind = HOLD; r = node; born = life[node]; goto failed
    :: isDurable && request[node].phase == RUNNING && faults > 0 ->
      faults = faults - 1; r = node; born = life[node]; request[r].phase = ENDING;
      if
      :: kind = SETTLE; request[r].usage = LITTLE
      :: IS_STREAMED(r) -> kind = SETTLE; request[r].usage = MUCH
      :: request[r].delivered == 0 -> kind = RELEASE
      fi;
      tokens = request[r].usage;
      goto failed
    :: !isDurable && request[node].phase == ENDED -> laneEnded[node] = 1; goto end
    :: isDurable && QUIET -> laneEnded[2 + node] = 1; goto end
    fi;
    born = life[node];
#if defined(READ_BEFORE_LOCK) || defined(LOCKS_UNORDERED) || defined(BUDGET_READ_FIRST)
    goto begin;
#endif
lock:
    /* src/stores/book-reads.ts: balances, then src/stores/book-reads.ts: budgetUses. A locked row is always the newest. */
    balanceLocked = 1;
#ifdef LOCKS_UNORDERED
    (!isDurable || !budgetLocked);
#endif
    budgetLocked = 1;
#ifndef BUDGET_READ_FIRST
    readBudget();
#endif
    era = epoch; available = committed.available; held = committed.held; spent = committed.spent
  };
  /* src/stores/book-reads.ts: holds, a later statement whose snapshot is younger than the locks. Then
   * src/credits/decide.ts: decide; src/stores/postgres/book-rows.ts: writeRows; src/stores/postgres/transact.ts: commit. They
   * are one step: no one else writes the rows under the lock, and no one sees a write before its commit. A death in between
   * is the same as one before, and a commit may still be carried out when its node has died. */
  atomic {
    if
    :: STORE_DIED -> goto failed
    :: !STORE_DIED && WAS_KILLED -> goto abandoned
    :: !STORE_DIED
    fi;
#ifndef READ_BEFORE_LOCK
    copyRow(row, committed.hold[r]);
#endif
    if
    :: kind == HOLD -> decideHold()
    :: kind == RENEW -> decideRenew()
    :: kind == SETTLE -> decideSettle()
    :: kind == RELEASE -> decideRelease()
    :: kind == EXPIRE -> decideExpire()
    fi;
    /* 4: the arrows. */
    assert(committed.hold[r].state == row.state || committed.hold[r].state == NONE ||
      (committed.hold[r].state == OPEN && row.state != NONE) ||
      (committed.hold[r].state == EXPIRED && row.state == CHARGED));
    assert(committed.hold[r].state == row.state || row.state != EXPIRED || committed.hold[r].overdue);
    /* 9: a request that was charged is charged no second time. */
    assert(committed.hold[r].state != CHARGED || committed.hold[r].events == row.events);
    /* A renewal puts back what was lost, as far as credits reach. */
    assert(kind != RENEW || row.state != NONE);
    /* 6: who kept within its hold, and whose hold was kept, is never short. */
    assert(row.state != CHARGED || committed.hold[r].state != OPEN || committed.hold[r].amount < row.charged + row.shortfall ||
      row.shortfall == 0);
    if
    :: kind == RENEW && committed.hold[r].state == NONE && row.amount == request[r].promised -> request[r].lost = 0
    :: else
    fi;
    if
    :: kind == HOLD || kind == RENEW || committed.hold[r].state != OPEN
    :: else -> row.overdue = committed.hold[r].overdue
    fi;
    if
    :: row.state != OPEN -> row.amount = 0; row.checkpoint = 0; row.overdue = 0 /* never read again */
    :: else
    fi;
    countInBudget();
    copyRow(committed.hold[r], row);
    committed.available = available; committed.held = held; committed.spent = spent;
    balanceLocked = 0; budgetLocked = 0;
    forgetRow();
    /* src/stores/postgres/pools.ts: synchronous_commit. A durable commit takes all before it to the disk. */
    if
#ifdef SETTLE_NOT_DURABLE
    :: epoch < CRASHES
#else
    :: !isDurable && epoch < CRASHES
#endif
    :: copyRows(disk, committed)
    fi;
    check()
  };
  /* The answer to the commit. It may be lost, and the waiting process may die before it comes. */
  atomic {
    if
    :: WAS_KILLED || !IS_AWAITED -> idle(); goto choose
    :: !WAS_KILLED && IS_AWAITED && faults > 0 -> faults = faults - 1; goto failed
    :: !WAS_KILLED && IS_AWAITED
    fi;
    if
    /* The spool forgets an entry after it was booked: a process that dies in between books it again. */
    :: replays -> request[r].spooled = 0; request[r].window = 0
    :: !replays && kind == HOLD && isHeld ->
      request[r].phase = RUNNING;
      request[r].promised = amount; request[r].window = counter;
      /* Something reaches the client before it ends, or nothing does. */
      if
      :: IS_STREAMED(r) -> request[r].delivered = PIECE
      :: skip
      fi
    :: !replays && kind == HOLD && !isHeld -> endRequest(r, REFUSED)
    :: !replays && kind == SETTLE -> endRequest(r, COMPLETE)
    :: !replays && kind == RELEASE -> endRequest(r, REFUSED)
    fi;
    check(); idle(); goto choose
  };

abandoned:
  /* The server finds the connection broken and undoes the transaction. */
  atomic {
    if
    :: STORE_DIED
    :: !STORE_DIED -> balanceLocked = 0; budgetLocked = 0
    fi;
    idle(); goto choose
  };

begin:
#ifdef READ_BEFORE_LOCK
  atomic { copyRow(row, committed.hold[r]) };
#endif
#ifdef BUDGET_READ_FIRST
  atomic { readBudget() };
#endif
#ifdef LOCKS_UNORDERED
  if
  :: !isDurable -> atomic { !budgetLocked -> budgetLocked = 1 }
  :: isDurable
  fi;
#endif
  atomic {
    if
    :: WAS_KILLED -> idle(); goto choose
    :: !WAS_KILLED && IS_FREE -> goto lock
    fi
  };

failed:
  atomic {
    era = 0; isHeld = 0; amount = 0; forgetRow();
    if
    :: WAS_KILLED || replays || !IS_AWAITED -> idle(); goto choose
    /* src/stores/postgres/transact.ts: retrying. The same transition again. */
    :: !WAS_KILLED && !replays && IS_AWAITED -> idle(); goto choose
    /* Or it has been long enough. */
    :: !WAS_KILLED && !replays && kind == HOLD -> endRequest(r, REFUSED); check(); idle(); goto choose
    :: !WAS_KILLED && !replays && kind == RELEASE ->
      request[r].spooled = RELEASE; endRequest(r, REFUSED); check(); idle(); goto choose
    /* Its disk fails, too: the stream ends in an error, and the hold is left to the sweeper. */
    :: !WAS_KILLED && !replays && kind == SETTLE -> endRequest(r, CUT_OFF); check(); idle(); goto choose
    /* src/ledger/spool.ts: append. The spool has the settlement, fsynced. */
    :: !WAS_KILLED && !replays && kind == SETTLE -> request[r].spooled = SETTLE
    fi
  };
  /* The last byte leaves. */
  atomic {
    if
    :: WAS_KILLED
    :: !WAS_KILLED -> endRequest(r, COMPLETE); check()
    fi;
    idle(); goto choose
  };
end:
  skip
}

inline noteLoss(r) {
  if
  :: request[r].phase != ENDED && committed.hold[r].state == OPEN && disk.hold[r].state == NONE -> request[r].lost = 1
  :: else
  fi
}
inline letLifePass(r) {
  committed.hold[r].overdue = 1;
  if
  :: disk.hold[r].state == OPEN -> disk.hold[r].overdue = 1
  :: else
  fi
}
inline kill(node) {
  kills = kills + 1; life[node] = 1;
  if
  :: request[node].phase != ENDED -> endRequest(node, (request[node].saw == NOTHING -> CUT_OFF : request[node].saw))
  :: else
  fi;
  check()
}
/* A request that still runs has a lease: docs/leases.pml. */
#define MAY_PASS(r) (committed.hold[r].state == OPEN && !committed.hold[r].overdue && \
  (request[r].phase == ENDING || request[r].phase == ENDED))

/* Events that no process decides: time passes, processes die. */
proctype World() {
  do
  :: d_step { MAY_PASS(0) -> letLifePass(0) }
  :: d_step { MAY_PASS(1) -> letLifePass(1) }
  :: d_step { epoch < CRASHES ->
      epoch = epoch + 1;
      noteLoss(0); noteLoss(1);
      copyRows(committed, disk);
      balanceLocked = 0; budgetLocked = 0;
      check() }
  :: d_step { window < TURNS -> window = 1 }
  :: d_step { kills < KILLS -> kill(0) }
  :: d_step { kills < KILLS -> kill(1) }
  :: d_step { laneEnded[2] && laneEnded[3] ->
      /* No credit stays locked, no entry stays in the spool, and every complete answer that was seen is in the books. */
      assert(committed.held == 0 && request[0].spooled == 0 && request[1].spooled == 0);
      check() } -> break
  od
}

init {
  atomic {
    committed.available = CREDITS;
    disk.available = CREDITS;
    run CommitQueue(0, 0); run CommitQueue(1, 0); run CommitQueue(0, 1); run CommitQueue(1, 1); run World()
  }
}
