import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { VERSION } from "../../lib/base/version.ts";
import { SCHEMA_STEPS } from "../../lib/storage/postgres/schema.ts";
import { buildAfter, buildBefore, FIELD_AFTER, VERSION_AFTER, VERSION_BEFORE } from "../support/other_build.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";
import { jsonOf, type KillableGateway, type OpenAiUpstream, until, withWorld, type World } from "../support/world.ts";

const HANGS = { kind: "stall", chunks: ["half an "] } as const;
const TITLE = "A name of the newer version";
const ANSWERS = { kind: "text", chunks: ["an ", "answer"] } as const;

/** Several builds of Postern over one database. */
interface Place {
  readonly upstream: OpenAiUpstream;
  /** Starts a gateway. @param program folder of another build; default: this one */
  start(program?: string): Promise<KillableGateway>;
  rows(text: string): Promise<readonly Record<string, unknown>[]>;
}

async function statusOf(gateway: KillableGateway, id: string): Promise<unknown> {
  return (await jsonOf(await gateway.call(`/v1/runs/${id}`)) as { readonly status: unknown }).status;
}

async function startRun(gateway: KillableGateway, conversation?: string): Promise<string> {
  const body = { message: "Hi", ...conversation === undefined ? {} : { conversation_id: conversation } };
  const reply = await gateway.call("/v1/runs", { body });
  assert.equal(reply.status, 202, await reply.clone().text());
  return (await jsonOf(reply) as { readonly id: string }).id;
}

/** Starts a run whose model does not end its answer, and waits until the model is asked. */
async function startHanging({ upstream }: Place, gateway: KillableGateway): Promise<string> {
  upstream.script(HANGS);
  const asked = upstream.turns.length;
  const id = await startRun(gateway);
  await until(() => upstream.turns.length > asked, "the model was never asked");
  return id;
}

/** Writes the record of a conversation at a gateway. */
async function rename(gateway: KillableGateway, conversation: string): Promise<void> {
  const reply = await gateway.call(`/v1/conversations/${conversation}`, { body: { title: TITLE } });
  assert.equal(reply.status, 200, await reply.text());
}

async function healthOf(gateway: KillableGateway): Promise<unknown> {
  return (await jsonOf(await gateway.call("/health")) as { readonly status: string }).status;
}

async function completed(gateway: KillableGateway, id: string): Promise<void> {
  let run = "";
  await until(async () => {
    run = await (await gateway.call(`/v1/runs/${id}`)).text();
    return (JSON.parse(run) as { readonly status: string }).status === "completed";
  }, () => run);
}

/** Waits until each gateway has read the end of a run. */
async function readEverywhere(id: string, gateways: readonly KillableGateway[]): Promise<void> {
  for (const gateway of gateways) await completed(gateway, id);
}

describe("a rolling upgrade over one PostgreSQL", { skip: NO_POSTGRES, concurrency: 3 }, () => {
  let server: PostgresServer;
  before(async () => void (server = await startPostgres()));
  after(() => server.end());

  const withPlace = (use: (place: Place, world: World) => Promise<void>) =>
    withWorld(async (world) => {
      const upstream = await world.upstream(ANSWERS);
      const [database, workspace] = [await server.createDatabase(), await world.folder()];
      const env = {
        POSTERN__STORAGE__DRIVER: "postgres",
        POSTERN__STORAGE__URL_ENV: "RECORDS",
        POSTERN__CLUSTER__LEASE_SECS: "2",
        POSTERN__GATEWAY__SHUTDOWN_GRACE_SECS: "1",
        POSTERN__CLUSTER__WORKSPACE_ID: "shared",
        RECORDS: server.url(database),
      };
      const start = (program?: string) =>
        world.killableGateway({
          baseUrl: upstream.baseUrl,
          env,
          workspace,
          ...program === undefined ? {} : { program },
        });
      await use({ upstream, start, rows: (text) => server.run(text, database) }, world);
    });
  const schemaVersion = async ({ rows }: Place) =>
    (await rows("SELECT version FROM postern.schema_version"))[0]?.["version"];
  const bodyOf = async ({ rows }: Place, collection: string, key: string) => {
    const [row] = await rows(`SELECT body FROM postern.records WHERE collection = '${collection}' AND key = '${key}'`);
    return JSON.parse(String(row?.["body"])) as Readonly<Record<string, unknown>>;
  };
  /** Expects that a gateway does not start on this schema, and that nothing has changed then. */
  const assertRefused = async (place: Place, gateway: KillableGateway) => {
    const count = "SELECT (SELECT version FROM postern.schema_version), count(*) FROM postern.records WHERE " +
      "collection IN ('runs', 'conversations', 'run_inputs')";
    const records = await place.rows(count);
    await assert.rejects(gateway.restart(), (error) => {
      assert.match(
        String(error),
        /version is \d+, and this Postern knows versions up to \d+; run the Postern that needs/,
      );
      return true;
    });
    assert.deepEqual(await place.rows(count), records);
  };

  test("gateways of this version and the next work beside each other, and keep what the other wrote", () =>
    withPlace(async (place, world) => {
      const [old, replaced] = await Promise.all([place.start(), place.start()]);
      const begun = await startHanging(place, old);
      assert.equal((await replaced.stop()).exitCode, 0);
      const upgraded = await place.start(buildAfter(await world.folder()));
      assert.equal(await schemaVersion(place), SCHEMA_STEPS.length + 1);
      const leases = await place.rows("SELECT body FROM postern.records WHERE collection = 'gateway_leases'");
      const versions = leases.map(({ body }) =>
        (JSON.parse(String(body)) as { about: { version: string } }).about.version
      );
      assert.deepEqual(versions.sort(), [VERSION, VERSION_AFTER].sort());
      place.upstream.script(ANSWERS);
      for (const gateway of [old, upgraded]) await readEverywhere(await startRun(gateway), [old, upgraded]);
      assert.equal(await healthOf(old), "ok");
      assert.equal(await statusOf(upgraded, begun), "running");
      await assertRefused(place, replaced);

      await readEverywhere(await startRun(upgraded, "c1"), [old, upgraded]);
      await rename(upgraded, "c1");
      const handed = await startHanging(place, upgraded);
      place.upstream.script(ANSWERS);
      assert.equal((await upgraded.stop()).exitCode, 0);
      await completed(old, handed);
      await completed(old, await startRun(old, "c1"));
      for (const [collection, key] of [["runs", handed], ["run_inputs", handed], ["conversations", "c1"]] as const) {
        assert.equal((await bodyOf(place, collection, key))[FIELD_AFTER], true, `${collection} lost a field`);
      }
      await upgraded.restart();
      assert.equal((await old.stop()).exitCode, 0);
      await completed(upgraded, begun);
    }));

  test("a gateway of the first schema goes on beside this version, which takes over what it leaves and hands over what it has", () =>
    withPlace(async (place, world) => {
      const program = buildBefore(await world.folder(), { schemaStep: 1 });
      const [old, other] = await Promise.all([place.start(program), place.start(program)]);
      assert.equal(await schemaVersion(place), 1);
      await readEverywhere(await startRun(old, "c1"), [old, other]);
      const begun = await startHanging(place, old);
      const upgraded = await place.start();
      assert.equal(await schemaVersion(place), SCHEMA_STEPS.length);
      const lease = await place.rows("SELECT body FROM postern.records WHERE collection = 'gateway_leases'");
      assert.equal(lease.filter(({ body }) => String(body).includes(`"version":"${VERSION_BEFORE}"`)).length, 2);

      place.upstream.script(ANSWERS);
      for (const gateway of [old, upgraded, other]) {
        await readEverywhere(await startRun(gateway, "c1"), [old, upgraded, other]);
      }
      await rename(upgraded, "c1");
      const handed = await startHanging(place, upgraded);
      place.upstream.script(ANSWERS);
      assert.equal((await upgraded.stop()).exitCode, 0);
      await completed(old, handed);
      await completed(old, await startRun(old, "c1"));
      assert.equal((await bodyOf(place, "conversations", "c1"))["title"], TITLE);

      await upgraded.restart();
      const left = await startHanging(place, old);
      place.upstream.script(ANSWERS);
      assert.equal((await other.stop()).exitCode, 0);
      await old.kill();
      for (const id of [begun, left]) await completed(upgraded, id);
      await assertRefused(place, old);
      assert.equal(await healthOf(upgraded), "ok");
    }));

  test("a gateway of the version before joins and starts again on a schema that it knows, and keeps fields that it does not", () =>
    withPlace(async (place, world) => {
      const newer = await place.start();
      await readEverywhere(await startRun(newer, "c1"), [newer]);
      await rename(newer, "c1");
      const folder = (await bodyOf(place, "workspaces", "shared"))["folder_digest"];
      assert.ok(folder);
      const older = await place.start(buildBefore(await world.folder()));
      await until(
        async () => (await bodyOf(place, "workspaces", "shared"))["folder_digest"] === folder,
        "the gateway that is there does not say again which folder the workspace is",
      );
      const handed = await startHanging(place, newer);
      place.upstream.script(ANSWERS);
      assert.equal((await newer.stop()).exitCode, 0);
      await completed(older, handed);
      await completed(older, await startRun(older, "c1"));
      const left = await startHanging(place, older);
      place.upstream.script(ANSWERS);
      await older.kill();
      await older.restart();
      await completed(older, left);
      assert.equal((await bodyOf(place, "workspaces", "shared"))["folder_digest"], undefined);
      await newer.restart();
      assert.equal((await bodyOf(place, "workspaces", "shared"))["folder_digest"], folder);
      await readEverywhere(await startRun(newer, "c1"), [newer, older]);
      const { title, messages } = await bodyOf(place, "conversations", "c1");
      assert.deepEqual([title, messages], [TITLE, 6]);
    }));
});
