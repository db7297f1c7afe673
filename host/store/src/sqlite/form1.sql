-- Form 1 of the embedded store. Never altered: what comes later is a form of its own.

-- One row a session: the lease and the head, so that an append checks and moves both in one row.
CREATE TABLE journal (
  id         INTEGER PRIMARY KEY,
  org        TEXT    NOT NULL,
  session    TEXT    NOT NULL,
  head       INTEGER NOT NULL DEFAULT 0,
  updated_ms INTEGER NOT NULL DEFAULT 0,
  fence      INTEGER NOT NULL DEFAULT 0,   -- only grows; stays after a release
  token      TEXT,                         -- the owner; NULL after a release
  label      TEXT,
  until_ms   INTEGER,
  ttl_ms     INTEGER,
  UNIQUE (org, session)
) STRICT;

CREATE TABLE record (
  journal INTEGER NOT NULL,
  seq     INTEGER NOT NULL,
  id      TEXT    NOT NULL,
  fence   INTEGER NOT NULL,
  kind    TEXT    NOT NULL,
  version INTEGER NOT NULL,
  at_ms   INTEGER NOT NULL,
  body    TEXT    NOT NULL,
  sum     INTEGER NOT NULL,
  PRIMARY KEY (journal, seq)
) STRICT, WITHOUT ROWID;

-- The newest one of each session only.
CREATE TABLE snapshot (
  journal INTEGER PRIMARY KEY,
  seq     INTEGER NOT NULL,
  body    TEXT    NOT NULL,
  sum     INTEGER NOT NULL
) STRICT;

-- A blob is there when its row is; pieces without one are left over from a crash and are completed or collected.
CREATE TABLE blob (
  journal INTEGER NOT NULL,
  digest  TEXT    NOT NULL,
  size    INTEGER NOT NULL,
  PRIMARY KEY (journal, digest)
) STRICT, WITHOUT ROWID;

CREATE TABLE blob_piece (
  id      INTEGER PRIMARY KEY,
  journal INTEGER NOT NULL,
  digest  TEXT    NOT NULL,
  piece   INTEGER NOT NULL,
  bytes   BLOB    NOT NULL,
  UNIQUE (journal, digest, piece)
) STRICT;

-- Consumed items stay: the first on a target has won for ever.
CREATE TABLE inbox (
  place    INTEGER PRIMARY KEY,            -- the order in which they came
  journal  INTEGER NOT NULL,
  id       TEXT    NOT NULL,
  target   TEXT    NOT NULL,
  kind     TEXT    NOT NULL,
  who      TEXT    NOT NULL,
  at_ms    INTEGER NOT NULL,
  digest   TEXT    NOT NULL,
  body     TEXT    NOT NULL,
  consumed INTEGER NOT NULL DEFAULT 0,
  UNIQUE (journal, id),
  UNIQUE (journal, target)
) STRICT;

CREATE INDEX inbox_waiting ON inbox (journal, place) WHERE consumed = 0;
