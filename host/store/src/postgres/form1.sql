-- Form 1 of the PostgreSQL store. Never altered: what comes later is a form of its own.
--
-- Times of leases are milliseconds of the database's clock; hosts' clocks take no part. Text that a provider, a tool or a
-- person wrote is bytea: it may hold a NUL, which text cannot.

CREATE SCHEMA wharf;

CREATE TABLE wharf.form (number integer NOT NULL);
INSERT INTO wharf.form VALUES (1);

-- One row a session: the lease and the head, so that an append checks and moves both in one row.
CREATE TABLE wharf.journal (
  id         bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  org        text    COLLATE "C" NOT NULL,
  session    text    COLLATE "C" NOT NULL,
  head       bigint  NOT NULL DEFAULT 0,
  updated_ms bigint  NOT NULL DEFAULT 0,
  fence      bigint  NOT NULL DEFAULT 0,   -- only grows; stays after a release
  token      text,                         -- the owner; NULL after a release
  label      bytea,
  until_ms   bigint,
  ttl_ms     bigint,
  is_open    boolean NOT NULL DEFAULT false,   -- a worker that runs this harness has something to do, if nobody else does it
  open_for   text    COLLATE "C",
  waiting_ms bigint  NOT NULL DEFAULT 0,       -- since when, unless a lease ended later
  deleted_by bytea,                        -- the mark of a deleted session
  deleted_ms bigint,
  UNIQUE (org, session)
) WITH (fillfactor = 70);                  -- rows change at every append: room for that on their own page

-- No index names a column that every append changes: such a row is updated in place.
CREATE INDEX journal_open ON wharf.journal (org, open_for) WHERE is_open;

CREATE TABLE wharf.record (
  journal bigint  NOT NULL,
  seq     bigint  NOT NULL,
  id      text    COLLATE "C" NOT NULL,
  fence   bigint  NOT NULL,
  kind    text    NOT NULL,
  version integer NOT NULL,
  at_ms   bigint  NOT NULL,
  body    bytea   NOT NULL,
  sum     bigint  NOT NULL,
  PRIMARY KEY (journal, seq)
);

-- The newest one of each session only.
CREATE TABLE wharf.snapshot (
  journal bigint PRIMARY KEY,
  seq     bigint NOT NULL,
  body    bytea  NOT NULL,
  sum     bigint NOT NULL
);

-- A blob is there when its row is; pieces without one are left over from a crash and are completed or collected.
CREATE TABLE wharf.blob (
  journal bigint NOT NULL,
  digest  text   COLLATE "C" NOT NULL,
  size    bigint NOT NULL,
  PRIMARY KEY (journal, digest)
);

CREATE TABLE wharf.blob_piece (
  journal bigint  NOT NULL,
  digest  text    COLLATE "C" NOT NULL,
  piece   integer NOT NULL,
  bytes   bytea   NOT NULL,
  PRIMARY KEY (journal, digest, piece)
);
-- Outputs are text of any kind; what the server would gain by compressing them it would lose in time.
ALTER TABLE wharf.blob_piece ALTER COLUMN bytes SET STORAGE EXTERNAL;

-- Consumed items stay: the first on a target has won for ever.
CREATE TABLE wharf.inbox (
  place    bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,   -- the order in which they came
  journal  bigint  NOT NULL,
  id       bytea   NOT NULL,
  target   bytea   NOT NULL,
  kind     bytea   NOT NULL,
  who      bytea   NOT NULL,
  at_ms    bigint  NOT NULL,
  digest   bytea   NOT NULL,
  body     bytea   NOT NULL,
  consumed boolean NOT NULL DEFAULT false,
  UNIQUE (journal, id),
  UNIQUE (journal, target)
);

CREATE INDEX inbox_waiting ON wharf.inbox (journal, place) WHERE NOT consumed;

-- What a write answers: a word, and what belongs to it.
CREATE TYPE wharf.answer AS (
  word  text,      -- ok, busy, fenced, stale, deleted, full, late, repeated, not-waiting
  num   bigint,    -- a head, a fence, milliseconds
  num2  bigint,
  bytes bytea      -- a label, a name
);

-- The database's time in milliseconds. Tests give a time of their own.
CREATE FUNCTION wharf.now_ms(given bigint) RETURNS bigint LANGUAGE sql VOLATILE
  RETURN coalesce(given, (extract(epoch FROM clock_timestamp()) * 1000)::bigint);

-- How long the owner stays that; NULL if nobody has the session. More than its whole time left means that the clock was set
-- back: it has at most its whole time.
CREATE FUNCTION wharf.left_ms(j wharf.journal, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
  RETURN CASE WHEN (j).token IS NOT NULL AND (j).until_ms > now THEN least((j).until_ms - now, (j).ttl_ms) END;

-- The session's row, locked until the transaction ends.
CREATE FUNCTION wharf.find(p_org text, p_session text) RETURNS wharf.journal LANGUAGE sql VOLATILE
  BEGIN ATOMIC
    SELECT j FROM wharf.journal j WHERE j.org = p_org AND j.session = p_session FOR NO KEY UPDATE;
  END;

-- The same, made if it is absent.
CREATE FUNCTION wharf.find_or_make(p_org text, p_session text) RETURNS wharf.journal LANGUAGE plpgsql VOLATILE AS $$
DECLARE j wharf.journal;
BEGIN
  j := wharf.find(p_org, p_session);
  IF j.id IS NULL THEN
    INSERT INTO wharf.journal (org, session) VALUES (p_org, p_session) ON CONFLICT (org, session) DO NOTHING;
    j := wharf.find(p_org, p_session);
  END IF;
  RETURN j;
END $$;

-- Why this owner may not write; NULL if it may. This is where a stale owner is refused.
CREATE FUNCTION wharf.refusal(j wharf.journal, p_token text, p_fence bigint, now bigint) RETURNS wharf.answer
LANGUAGE sql IMMUTABLE
  RETURN CASE
    WHEN (j).deleted_ms IS NOT NULL THEN ROW('deleted', (j).deleted_ms, NULL, (j).deleted_by)::wharf.answer
    WHEN (j).id IS NULL OR (j).token IS DISTINCT FROM p_token OR (j).fence <> p_fence OR wharf.left_ms(j, now) IS NULL
      THEN ROW('fenced', NULL, NULL, NULL)::wharf.answer
  END;

CREATE FUNCTION wharf.acquire(
  p_now bigint, p_org text, p_session text, p_token text, p_label bytea, p_ttl bigint, p_take_over boolean
) RETURNS wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal := wharf.find_or_make(p_org, p_session);
  now bigint := wharf.now_ms(p_now);
  remains bigint := wharf.left_ms(j, now);
BEGIN
  IF j.deleted_ms IS NOT NULL THEN RETURN ROW('deleted', j.deleted_ms, NULL, j.deleted_by)::wharf.answer; END IF;
  IF remains IS NOT NULL AND j.token <> p_token AND NOT p_take_over THEN
    IF j.until_ms - now > j.ttl_ms THEN
      -- Else a dead owner would hold the session until the clock is where it was.
      UPDATE wharf.journal SET until_ms = now + remains WHERE id = j.id;
    END IF;
    RETURN ROW('busy', remains, NULL, j.label)::wharf.answer;
  END IF;
  IF remains IS NULL OR j.token <> p_token THEN j.fence := j.fence + 1; END IF;
  UPDATE wharf.journal SET fence = j.fence, token = p_token, label = p_label, until_ms = now + p_ttl, ttl_ms = p_ttl
    WHERE id = j.id;
  RETURN ROW('ok', j.fence, j.head, NULL)::wharf.answer;
END $$;

CREATE FUNCTION wharf.renew(p_now bigint, p_org text, p_session text, p_token text, p_fence bigint, p_ttl bigint)
RETURNS wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal := wharf.find(p_org, p_session);
  now bigint := wharf.now_ms(p_now);
  no wharf.answer := wharf.refusal(j, p_token, p_fence, now);
BEGIN
  IF no.word IS NOT NULL THEN RETURN no; END IF;
  UPDATE wharf.journal SET until_ms = now + p_ttl, ttl_ms = p_ttl WHERE id = j.id;
  RETURN ROW('ok', NULL, NULL, NULL)::wharf.answer;
END $$;

CREATE FUNCTION wharf.release(p_now bigint, p_org text, p_session text, p_token text, p_fence bigint)
RETURNS wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal := wharf.find(p_org, p_session);
  no wharf.answer := wharf.refusal(j, p_token, p_fence, wharf.now_ms(p_now));
BEGIN
  IF no.word IS NOT NULL THEN RETURN no; END IF;
  UPDATE wharf.journal SET token = NULL, label = NULL, until_ms = NULL, ttl_ms = NULL, waiting_ms = wharf.now_ms(p_now)
    WHERE id = j.id;
  IF j.is_open THEN PERFORM pg_notify('wharf_work', ''); END IF;
  RETURN ROW('ok', NULL, NULL, NULL)::wharf.answer;
END $$;

-- Takes the session that has waited longest of those that are open for one of these harnesses and that nobody has. Claimers
-- never wait for each other.
CREATE FUNCTION wharf.claim(
  p_now bigint, p_org text, p_harnesses text[], p_skip text[], p_token text, p_label bytea, p_ttl bigint
) RETURNS wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal;
  now bigint := wharf.now_ms(p_now);
BEGIN
  SELECT * INTO j FROM wharf.journal w
    WHERE w.org = p_org AND w.is_open AND w.open_for = ANY (p_harnesses) AND w.session <> ALL (p_skip)
      AND wharf.left_ms(w, now) IS NULL
    ORDER BY greatest(w.waiting_ms, coalesce(w.until_ms, 0)), w.session LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
  IF j.id IS NULL THEN RETURN ROW('none', NULL, NULL, NULL)::wharf.answer; END IF;
  UPDATE wharf.journal SET fence = j.fence + 1, token = p_token, label = p_label, until_ms = now + p_ttl, ttl_ms = p_ttl
    WHERE id = j.id;
  RETURN ROW('ok', j.fence + 1, j.head, convert_to(j.session, 'UTF8'))::wharf.answer;
END $$;

-- A piece of a blob that a coming append names. Answers how many bytes are there by now, or that the blob is whole.
CREATE FUNCTION wharf.put_piece(
  p_now bigint, p_org text, p_session text, p_token text, p_fence bigint, p_expected bigint,
  p_digest text, p_piece integer, p_bytes bytea
) RETURNS wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal := wharf.find(p_org, p_session);
  no wharf.answer := wharf.refusal(j, p_token, p_fence, wharf.now_ms(p_now));
BEGIN
  IF no.word IS NOT NULL THEN RETURN no; END IF;
  IF j.head <> p_expected THEN RETURN ROW('stale', j.head, NULL, NULL)::wharf.answer; END IF;
  IF EXISTS (SELECT FROM wharf.blob b WHERE b.journal = j.id AND b.digest = p_digest) THEN
    RETURN ROW('whole', NULL, NULL, NULL)::wharf.answer;
  END IF;
  -- What is there under a digest is what belongs there: an attempt that was cut off just goes on.
  INSERT INTO wharf.blob_piece (journal, digest, piece, bytes) VALUES (j.id, p_digest, p_piece, p_bytes)
    ON CONFLICT (journal, digest, piece) DO UPDATE SET bytes = excluded.bytes
    WHERE octet_length(blob_piece.bytes) <> octet_length(excluded.bytes);
  RETURN ROW('ok', NULL, NULL, NULL)::wharf.answer;
END $$;

-- Appends of several sessions, each whole or not at all; what one is refused for harms no other. No two are of one session.
-- Rows are locked in the order in which the appends stand, which is the same for everybody: by organisation and session. The
-- lists r, c and b hold the records, consumed items and blobs of all of them; `of` says of which one, from 1.
CREATE FUNCTION wharf.append(
  p_now bigint, p_orgs text[], p_sessions text[], p_tokens text[], p_fences bigint[], p_ttls bigint[], p_expected bigint[],
  p_doubt boolean[], p_counts integer[], p_updated bigint[], p_snapshots bytea[], p_snapshot_sums bigint[],
  p_open boolean[], p_open_for text[],
  r_of integer[], r_id text[], r_kind text[], r_version integer[], r_at bigint[], r_body bytea[], r_sum bigint[],
  c_of integer[], c_id bytea[], b_of integer[], b_digest text[], b_size bigint[]
) RETURNS SETOF wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal;
  no wharf.answer;
  answers wharf.answer[];
  ids bigint[];       -- of the appends that are done now; NULL for the others
  heads bigint[];     -- before them
  found_all boolean;
  done_at bigint;
BEGIN
  FOR i IN 1 .. cardinality(p_orgs) LOOP
    SELECT * INTO j FROM wharf.journal WHERE org = p_orgs[i] AND session = p_sessions[i] FOR NO KEY UPDATE;
    ids[i] := NULL;
    heads[i] := j.head;
    IF p_doubt[i] AND j.id IS NOT NULL AND j.deleted_ms IS NULL THEN
      -- An earlier attempt may have been committed. Its record ids stand where it would have put them; without records a
      -- snapshot may be put again, consumed items may not.
      IF p_counts[i] > 0 THEN
        SELECT count(*) = p_counts[i] INTO found_all
          FROM (SELECT u.id, row_number() OVER (ORDER BY u.place) AS at
                FROM unnest(r_of, r_id) WITH ORDINALITY AS u(of, id, place) WHERE u.of = i) AS part
          JOIN wharf.record r ON r.journal = j.id AND r.seq = p_expected[i] + part.at AND r.id = part.id
            AND r.fence = p_fences[i];
      ELSE
        SELECT count(*) > 0 AND bool_and(b.consumed IS TRUE) INTO found_all
          FROM unnest(c_of, c_id) AS u(of, id) LEFT JOIN wharf.inbox b ON b.journal = j.id AND b.id = u.id
          WHERE u.of = i;
      END IF;
      IF found_all THEN
        answers[i] := ROW('ok', p_expected[i] + p_counts[i], NULL, NULL)::wharf.answer;
        CONTINUE;
      END IF;
    END IF;
    no := wharf.refusal(j, p_tokens[i], p_fences[i], wharf.now_ms(p_now));
    IF no.word IS NULL AND j.head <> p_expected[i] THEN
      no := ROW('stale', j.head, NULL, NULL)::wharf.answer;
    END IF;
    IF no.word IS NULL AND i = ANY (c_of) THEN
      SELECT 'not-waiting', NULL, NULL, u.id INTO no
        FROM unnest(c_of, c_id) AS u(of, id) LEFT JOIN wharf.inbox b ON b.journal = j.id AND b.id = u.id AND NOT b.consumed
        WHERE u.of = i GROUP BY u.id HAVING count(*) > 1 OR bool_or(b.id IS NULL) LIMIT 1;
    END IF;
    IF no.word IS NOT NULL THEN
      answers[i] := no;
      CONTINUE;
    END IF;
    ids[i] := j.id;
    answers[i] := ROW('ok', j.head + p_counts[i], NULL, NULL)::wharf.answer;
  END LOOP;

  INSERT INTO wharf.record (journal, seq, id, fence, kind, version, at_ms, body, sum)
    SELECT ids[u.of], heads[u.of] + row_number() OVER (PARTITION BY u.of ORDER BY u.place), u.id, p_fences[u.of],
           u.kind, u.version, u.at, u.body, u.sum
    FROM unnest(r_of, r_id, r_kind, r_version, r_at, r_body, r_sum) WITH ORDINALITY
      AS u(of, id, kind, version, at, body, sum, place)
    WHERE ids[u.of] IS NOT NULL;
  IF cardinality(c_of) > 0 THEN
    UPDATE wharf.inbox b SET consumed = true FROM unnest(c_of, c_id) AS u(of, id) WHERE b.journal = ids[u.of] AND b.id = u.id;
  END IF;
  IF cardinality(b_of) > 0 THEN
    INSERT INTO wharf.blob (journal, digest, size)
      SELECT ids[u.of], u.digest, u.size FROM unnest(b_of, b_digest, b_size) AS u(of, digest, size)
      WHERE ids[u.of] IS NOT NULL ON CONFLICT (journal, digest) DO NOTHING;
  END IF;
  INSERT INTO wharf.snapshot (journal, seq, body, sum)
    SELECT u.id, u.head + u.count, u.body, u.sum
    FROM unnest(ids, heads, p_counts, p_snapshots, p_snapshot_sums) AS u(id, head, count, body, sum)
    WHERE u.id IS NOT NULL AND u.body IS NOT NULL
    ON CONFLICT (journal) DO UPDATE SET seq = excluded.seq, body = excluded.body, sum = excluded.sum;
  done_at := wharf.now_ms(p_now);
  UPDATE wharf.journal w SET
      head = u.head + u.count, updated_ms = coalesce(u.updated, w.updated_ms),
      until_ms = done_at + u.ttl, ttl_ms = u.ttl,
      is_open = coalesce(u.open, w.is_open), open_for = coalesce(u.open_for, w.open_for)
    FROM unnest(ids, heads, p_counts, p_updated, p_ttls, p_open, p_open_for) AS u(id, head, count, updated, ttl, open, open_for)
    WHERE w.id = u.id;
  RETURN QUERY SELECT t.word, t.num, t.num2, t.bytes
    FROM unnest(answers) WITH ORDINALITY AS t(word, num, num2, bytes, at) ORDER BY t.at;
END $$;

CREATE FUNCTION wharf.put_inbox(
  p_now bigint, p_org text, p_session text, p_id bytea, p_target bytea, p_kind bytea, p_who bytea, p_at bigint, p_digest bytea,
  p_body bytea, p_max bigint
) RETURNS wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal := wharf.find_or_make(p_org, p_session);
  there wharf.inbox;
BEGIN
  IF j.deleted_ms IS NOT NULL THEN RETURN ROW('deleted', j.deleted_ms, NULL, j.deleted_by)::wharf.answer; END IF;
  SELECT * INTO there FROM wharf.inbox b
    WHERE b.journal = j.id AND (b.id = p_id OR b.target = p_target) ORDER BY b.id = p_id DESC LIMIT 1;
  IF there.place IS NOT NULL THEN
    IF (there.id, there.target, there.kind, there.who, there.at_ms, there.digest, there.body)
       = (p_id, p_target, p_kind, p_who, p_at, p_digest, p_body) THEN
      RETURN ROW('repeated', NULL, NULL, NULL)::wharf.answer;
    END IF;
    RETURN ROW('late', NULL, NULL, NULL)::wharf.answer;
  END IF;
  IF (SELECT count(*) FROM wharf.inbox b WHERE b.journal = j.id AND NOT b.consumed) >= p_max THEN
    RETURN ROW('full', NULL, NULL, NULL)::wharf.answer;
  END IF;
  INSERT INTO wharf.inbox (journal, id, target, kind, who, at_ms, digest, body)
    VALUES (j.id, p_id, p_target, p_kind, p_who, p_at, p_digest, p_body);
  PERFORM pg_notify('wharf_inbox', j.id::text);
  IF j.open_for IS NOT NULL THEN
    UPDATE wharf.journal SET is_open = true, waiting_ms = CASE WHEN is_open THEN waiting_ms ELSE wharf.now_ms(p_now) END
      WHERE id = j.id;
    PERFORM pg_notify('wharf_work', '');
  END IF;
  RETURN ROW('ok', NULL, NULL, NULL)::wharf.answer;
END $$;

-- With doubt an earlier attempt may have been committed: then its mark is looked for.
CREATE FUNCTION wharf.delete(
  p_now bigint, p_org text, p_session text, p_token text, p_fence bigint, p_who bytea, p_at bigint, p_doubt boolean
) RETURNS wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal := wharf.find(p_org, p_session);
  no wharf.answer := wharf.refusal(j, p_token, p_fence, wharf.now_ms(p_now));
BEGIN
  IF p_doubt AND j.deleted_by = p_who AND j.deleted_ms = p_at THEN
    RETURN ROW('ok', NULL, NULL, NULL)::wharf.answer;
  END IF;
  IF no.word IS NOT NULL THEN RETURN no; END IF;
  DELETE FROM wharf.record WHERE journal = j.id;
  DELETE FROM wharf.snapshot WHERE journal = j.id;
  DELETE FROM wharf.blob WHERE journal = j.id;
  DELETE FROM wharf.blob_piece WHERE journal = j.id;
  DELETE FROM wharf.inbox WHERE journal = j.id;
  -- Nothing of it is left in its row either, but for the name and the mark.
  UPDATE wharf.journal SET head = 0, updated_ms = 0, fence = 0, token = NULL, label = NULL, until_ms = NULL, ttl_ms = NULL,
    is_open = false, open_for = NULL, deleted_by = p_who, deleted_ms = p_at WHERE id = j.id;
  PERFORM pg_notify('wharf_inbox', j.id::text);
  RETURN ROW('ok', NULL, NULL, NULL)::wharf.answer;
END $$;

-- Answers how many blobs went and how many bytes they had.
CREATE FUNCTION wharf.sweep(
  p_now bigint, p_org text, p_session text, p_token text, p_fence bigint, p_ttl bigint, p_head bigint, p_named text[]
) RETURNS wharf.answer LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  j wharf.journal := wharf.find(p_org, p_session);
  now bigint := wharf.now_ms(p_now);
  no wharf.answer := wharf.refusal(j, p_token, p_fence, now);
  blobs bigint;
  freed bigint;
BEGIN
  IF no.word IS NOT NULL THEN RETURN no; END IF;
  IF j.head <> p_head THEN RETURN ROW('stale', j.head, NULL, NULL)::wharf.answer; END IF;
  SELECT count(DISTINCT kept.digest), coalesce(sum(kept.size), 0) INTO blobs, freed FROM (
    SELECT digest, 0 AS size FROM wharf.blob WHERE journal = j.id
    UNION ALL SELECT digest, octet_length(bytes) FROM wharf.blob_piece WHERE journal = j.id
  ) AS kept WHERE kept.digest <> ALL (p_named);
  DELETE FROM wharf.blob WHERE journal = j.id AND digest <> ALL (p_named);
  DELETE FROM wharf.blob_piece WHERE journal = j.id AND digest <> ALL (p_named);
  UPDATE wharf.journal SET until_ms = now + p_ttl, ttl_ms = p_ttl WHERE id = j.id;
  RETURN ROW('ok', blobs, freed, NULL)::wharf.answer;
END $$;
