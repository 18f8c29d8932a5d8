/** Function that reads a field of a body as its column has it: `absent` for none, and nothing for other than a text. A damaged body has no fields. */
const INDEXED_TEXT = `
CREATE OR REPLACE FUNCTION {s}.indexed_text(body text, name text, absent text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $f$
DECLARE
  found_ text;
BEGIN
  CASE coalesce(json_typeof(body::json->name), 'null')
    WHEN 'null' THEN RETURN absent;
    WHEN 'string' THEN found_ := to_json(body::json->>name)::text;
    ELSE RETURN NULL;
  END CASE;
  RETURN CASE WHEN length(found_) <= 200 THEN found_ ELSE encode(sha256(convert_to(found_, 'UTF8')), 'hex') END;
EXCEPTION WHEN data_exception THEN
  RETURN absent;
END
$f$;
`;

/** Function that reads the sign of each number of a vector: the first bit of the last of its four bytes. A third of a millisecond for 768. */
const SIGNS_OF = `
CREATE OR REPLACE FUNCTION {s}.signs_of(vector bytea) RETURNS bit varying LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $f$
  SELECT translate(regexp_replace(encode(vector, 'hex'), '.{6}(.).', '\\1', 'g'), '0123456789abcdef', '0000000011111111')::bit varying
$f$;
`;

/**
 * Tables and functions of the store in PostgreSQL, as numbered steps. A released step never changes. `{s}` stands for the schema's name in
 * quotes: no statement depends on `search_path`, which a pooler may give to another session.
 *
 * - Keys and names compare by bytes, whatever the database's own locale (`COLLATE "C"`).
 * - A body is the JSON text as it was serialised. `jsonb` would refuse NUL and lone surrogates, which models produce.
 * - `write_group` applies batches, each all or nothing, and keeps their outcomes by the group's id in the same transaction.
 * - Ids give the order of creation. A new record takes its id under a lock of its collection that ends with the transaction, so ids become
 *   visible in their order: who has read up to an id never finds a smaller one later.
 */
export const SCHEMA_STEPS: readonly string[] = [
  `
CREATE TABLE {s}.records (
  collection text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  id int8 NOT NULL,
  version int8 NOT NULL,
  body text NOT NULL,
  searchable boolean NOT NULL,
  field1 text COLLATE "C",
  field2 text COLLATE "C",
  field3 text COLLATE "C",
  created_at int8 NOT NULL,
  updated_at int8 NOT NULL,
  PRIMARY KEY (collection, key)
);
CREATE SEQUENCE {s}.record_ids;
CREATE UNIQUE INDEX records_by_id ON {s}.records (id);
CREATE INDEX records_created ON {s}.records (collection, id);
CREATE INDEX records_scoped ON {s}.records (collection, "left"(key, strpos(key, '/')), id) WHERE strpos(key, '/') > 0;
CREATE INDEX runs_by_run_status ON {s}.records (field1, id) WHERE collection = 'runs';
CREATE INDEX approvals_by_status ON {s}.records (field1, id) WHERE collection = 'approvals';
CREATE INDEX deliveries_by_status ON {s}.records (field1, id) WHERE collection = 'deliveries';
CREATE INDEX audit_by_type ON {s}.records (field1, key) WHERE collection = 'audit';
CREATE INDEX audit_by_tool ON {s}.records (field2, key) WHERE collection = 'audit';
CREATE INDEX audit_by_run_id ON {s}.records (field3, key) WHERE collection = 'audit';

CREATE TABLE {s}.stream_records (
  stream text COLLATE "C" NOT NULL,
  seq int8 NOT NULL,
  body text NOT NULL,
  created_at int8 NOT NULL,
  PRIMARY KEY (stream, seq)
);

CREATE TABLE {s}.record_texts (
  record_id int8 PRIMARY KEY,
  terms text[] COLLATE "C" NOT NULL,
  repeats jsonb NOT NULL,
  total int4 NOT NULL
);
CREATE INDEX record_texts_terms ON {s}.record_texts USING gin (terms);

CREATE TABLE {s}.record_vectors (
  record_id int8 PRIMARY KEY,
  model text COLLATE "C" NOT NULL,
  dimensions int4 NOT NULL,
  vector bytea NOT NULL
);
CREATE INDEX record_vectors_model ON {s}.record_vectors (dimensions, record_id);

CREATE TABLE {s}.batches (
  id text COLLATE "C" PRIMARY KEY,
  outcomes jsonb,
  written_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX batches_written_at ON {s}.batches (written_at);

CREATE FUNCTION {s}.lock_number(kind text, name text) RETURNS int8 LANGUAGE sql IMMUTABLE AS $f$
  SELECT (hashtext('postern {s}')::int8 << 32) | CASE kind WHEN 'stream' THEN 0 ELSE 4096 END | (hashtext(name) & 4095)
$f$;

CREATE FUNCTION {s}.write_batch(writes jsonb, written_at int8) RETURNS jsonb LANGUAGE plpgsql AS $f$
DECLARE
  w jsonb;
  collection_ text;
  key_ text;
  op text;
  found_ record;
  last_seq int8;
  new_id int8;
  outcome jsonb := 'true';
BEGIN
  FOR w IN SELECT value FROM jsonb_array_elements(writes) LOOP
    new_id := NULL; op := w->>'op'; collection_ := w->>'collection'; key_ := w->>'key';
    CASE op
    WHEN 'put', 'insert', 'putIf' THEN
      SELECT r.id, r.version, r.searchable INTO found_ FROM {s}.records r
        WHERE r.collection = collection_ AND r.key = key_ FOR UPDATE;
      IF NOT FOUND AND op <> 'putIf' THEN
        PERFORM pg_advisory_xact_lock({s}.lock_number('collection', collection_));
        INSERT INTO {s}.records (collection, key, id, version, body, searchable, field1, field2, field3, created_at, updated_at)
          VALUES (collection_, key_, nextval('{s}.record_ids'), 1, w->>'body', w ? 'terms', w->'fields'->>0, w->'fields'->>1,
            w->'fields'->>2, written_at, written_at)
          ON CONFLICT (collection, key) DO NOTHING RETURNING id INTO new_id;
        IF FOUND AND w ? 'terms' THEN
          INSERT INTO {s}.record_texts (record_id, terms, repeats, total) VALUES
            (new_id, ARRAY(SELECT jsonb_array_elements_text(w->'terms')), w->'repeats', (w->>'total')::int4);
        END IF;
        CONTINUE WHEN FOUND OR new_id IS NOT NULL;
        SELECT r.id, r.version, r.searchable INTO found_ FROM {s}.records r
          WHERE r.collection = collection_ AND r.key = key_ FOR UPDATE;
        IF NOT FOUND THEN RAISE EXCEPTION 'a record came and went' USING ERRCODE = '40001'; END IF;
      END IF;
      IF found_.id IS NULL OR op = 'insert' OR (op = 'putIf' AND found_.version <> (w->>'version')::int8) THEN
        RAISE EXCEPTION 'a precondition of the batch did not hold' USING ERRCODE = 'PT412';
      END IF;
      UPDATE {s}.records r SET version = r.version + 1, body = w->>'body', searchable = w ? 'terms', updated_at = written_at,
        field1 = w->'fields'->>0, field2 = w->'fields'->>1, field3 = w->'fields'->>2 WHERE r.id = found_.id;
      IF found_.searchable THEN
        DELETE FROM {s}.record_vectors v WHERE v.record_id = found_.id;
        IF NOT w ? 'terms' THEN DELETE FROM {s}.record_texts t WHERE t.record_id = found_.id; END IF;
      END IF;
      IF w ? 'terms' THEN
        INSERT INTO {s}.record_texts AS t (record_id, terms, repeats, total) VALUES
          (found_.id, ARRAY(SELECT jsonb_array_elements_text(w->'terms')), w->'repeats', (w->>'total')::int4)
          ON CONFLICT (record_id) DO UPDATE SET terms = EXCLUDED.terms, repeats = EXCLUDED.repeats, total = EXCLUDED.total;
      END IF;
    WHEN 'delete', 'take' THEN
      DELETE FROM {s}.records r WHERE r.collection = collection_ AND r.key = key_
        RETURNING r.id, r.version, r.body, r.searchable INTO found_;
      IF FOUND AND found_.searchable THEN
        DELETE FROM {s}.record_texts t WHERE t.record_id = found_.id;
        DELETE FROM {s}.record_vectors v WHERE v.record_id = found_.id;
      END IF;
      IF op = 'take' THEN
        outcome := CASE WHEN found_.id IS NULL THEN 'null'::jsonb
          ELSE jsonb_build_object('version', found_.version, 'body', found_.body) END;
      END IF;
    WHEN 'check' THEN
      IF (w->>'version')::int8 = 0 THEN
        PERFORM pg_advisory_xact_lock({s}.lock_number('collection', collection_));
      END IF;
      SELECT r.id, r.version, r.searchable INTO found_ FROM {s}.records r
        WHERE r.collection = collection_ AND r.key = key_ FOR SHARE;
      IF coalesce(found_.version, 0) <> (w->>'version')::int8 THEN
        RAISE EXCEPTION 'a precondition of the batch did not hold' USING ERRCODE = 'PT412';
      END IF;
    WHEN 'vector' THEN
      INSERT INTO {s}.record_vectors AS v (record_id, model, dimensions, vector)
        SELECT r.id, w->>'model', (w->>'dimensions')::int4, decode(w->>'vector', 'base64') FROM {s}.records r
        WHERE r.collection = collection_ AND r.key = key_ AND r.version = (w->>'version')::int8 AND r.searchable
        ON CONFLICT (record_id) DO UPDATE SET model = EXCLUDED.model, dimensions = EXCLUDED.dimensions, vector = EXCLUDED.vector;
      IF NOT FOUND THEN RAISE EXCEPTION 'a precondition of the batch did not hold' USING ERRCODE = 'PT412'; END IF;
    WHEN 'append' THEN
      PERFORM pg_advisory_xact_lock({s}.lock_number('stream', w->>'stream'));
      SELECT coalesce(max(t.seq), 0) INTO last_seq FROM {s}.stream_records t WHERE t.stream = w->>'stream';
      IF last_seq <> (w->>'expectedSeq')::int8 THEN
        RAISE EXCEPTION 'a precondition of the batch did not hold' USING ERRCODE = 'PT412';
      END IF;
      INSERT INTO {s}.stream_records (stream, seq, body, created_at)
        SELECT w->>'stream', last_seq + b.ordinality, b.value, written_at
        FROM jsonb_array_elements_text(w->'bodies') WITH ORDINALITY b;
    WHEN 'drop' THEN
      PERFORM pg_advisory_xact_lock({s}.lock_number('stream', w->>'stream'));
      DELETE FROM {s}.stream_records t WHERE t.stream = w->>'stream';
    END CASE;
  END LOOP;
  RETURN outcome;
END
$f$;

CREATE FUNCTION {s}.lock_places(batches jsonb) RETURNS void LANGUAGE plpgsql AS $f$
DECLARE
  n int8;
BEGIN
  PERFORM 1 FROM {s}.records r JOIN (
      SELECT DISTINCT w.value->>'collection' AS collection, w.value->>'key' AS key
      FROM jsonb_array_elements(batches) b, jsonb_array_elements(b.value) w
      WHERE w.value ? 'key' AND w.value->>'op' <> 'check'
    ) p ON r.collection = p.collection AND r.key = p.key
    ORDER BY r.collection, r.key FOR UPDATE OF r;
  FOR n IN
    SELECT {s}.lock_number('stream', w.value->>'stream') AS n
      FROM jsonb_array_elements(batches) b, jsonb_array_elements(b.value) w WHERE w.value ? 'stream'
    UNION SELECT {s}.lock_number('collection', w.value->>'collection')
      FROM jsonb_array_elements(batches) b, jsonb_array_elements(b.value) w WHERE w.value->>'op' IN ('put', 'insert', 'check')
        AND NOT EXISTS (SELECT FROM {s}.records r WHERE r.collection = w.value->>'collection' AND r.key = w.value->>'key')
    ORDER BY 1
  LOOP
    PERFORM pg_advisory_xact_lock(n);
  END LOOP;
END
$f$;

CREATE FUNCTION {s}.write_group(group_id text, batches jsonb, written_at int8) RETURNS jsonb LANGUAGE plpgsql AS $f$
DECLARE
  b jsonb;
  outcomes_ jsonb := '[]';
BEGIN
  IF jsonb_array_length(batches) > 1 OR jsonb_array_length(batches->0) > 1 THEN
    PERFORM {s}.lock_places(batches);
  END IF;
  IF jsonb_array_length(batches) = 1 THEN
    outcomes_ := jsonb_build_array({s}.write_batch(batches->0, written_at));
  ELSE
    FOR b IN SELECT value FROM jsonb_array_elements(batches) LOOP
      BEGIN
        outcomes_ := outcomes_ || jsonb_build_array({s}.write_batch(b, written_at));
      EXCEPTION WHEN SQLSTATE 'PT412' THEN
        outcomes_ := outcomes_ || '[false]';
      END;
    END LOOP;
  END IF;
  INSERT INTO {s}.batches (id, outcomes) VALUES (group_id, outcomes_);
  RETURN outcomes_;
END
$f$;
`,
  // The signs of a vector, a bit for each number, are near those of its neighbours: the server compares them, and sends a few vectors alone
  `${SIGNS_OF}
ALTER TABLE {s}.record_vectors ADD COLUMN signs bit varying GENERATED ALWAYS AS ({s}.signs_of(vector)) STORED;
`,
  // Claims by their gateway, and by the run that started theirs. A claim of nobody has the empty text
  `${INDEXED_TEXT}
CREATE INDEX run_claims_by_gateway ON {s}.records (field1, id) WHERE collection = 'run_claims';
CREATE INDEX run_claims_by_parent_id ON {s}.records (field2, id) WHERE collection = 'run_claims';
CREATE INDEX open_sops_by_gateway ON {s}.records (field1, id) WHERE collection = 'open_sops';
CREATE INDEX open_deliveries_by_gateway ON {s}.records (field1, id) WHERE collection = 'open_deliveries';
UPDATE {s}.records SET field1 = {s}.indexed_text(body, 'gateway', '""'),
    field2 = CASE WHEN collection = 'run_claims' THEN {s}.indexed_text(body, 'parent_id', NULL) END
  WHERE collection IN ('run_claims', 'open_sops', 'open_deliveries');
`,
  // Open runs by their conversation, whose runs begin in the order of acceptance
  `
CREATE INDEX run_claims_by_conversation_id ON {s}.records (field3, id) WHERE collection = 'run_claims';
UPDATE {s}.records SET field3 = {s}.indexed_text(body, 'conversation_id', NULL) WHERE collection = 'run_claims';
`,
  // Signs by a faster function, which gives the same. Gateways of the steps before write claims without these fields, and work beside newer ones while a cluster is upgraded
  `${SIGNS_OF}${INDEXED_TEXT}
CREATE FUNCTION {s}.fill_fields() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
  NEW.field1 := coalesce(NEW.field1, {s}.indexed_text(NEW.body, 'gateway', '""'));
  IF NEW.collection = 'run_claims' THEN
    NEW.field2 := coalesce(NEW.field2, {s}.indexed_text(NEW.body, 'parent_id', NULL));
    NEW.field3 := coalesce(NEW.field3, {s}.indexed_text(NEW.body, 'conversation_id', NULL));
  END IF;
  RETURN NEW;
END
$f$;
CREATE TRIGGER fill_fields BEFORE INSERT OR UPDATE ON {s}.records FOR EACH ROW
  WHEN (NEW.collection IN ('run_claims', 'open_sops', 'open_deliveries') AND (NEW.field1 IS NULL OR (
    NEW.collection = 'run_claims' AND NEW.field3 IS NULL AND strpos(NEW.body, '"conversation_id":null') = 0)))
  EXECUTE FUNCTION {s}.fill_fields();
-- Claims that were written so since the steps above: the trigger fills them
UPDATE {s}.records SET version = version WHERE collection IN ('run_claims', 'open_sops', 'open_deliveries') AND
  (field1 IS NULL OR (collection = 'run_claims' AND field3 IS NULL AND strpos(body, '"conversation_id":null') = 0));
`,
];
