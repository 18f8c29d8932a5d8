import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { makeCertificate, NO_OPENSSL, startLinkFront } from "../support/link_front.ts";
import {
  checkFollowed,
  followElsewhere,
  linkEnvironment,
  startBehind,
  startHeldModel,
  startRun,
} from "../support/linked_processes.ts";
import { FollowedStream } from "../support/linked_gateways.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";
import { until, withWorld, type World } from "../support/world.ts";

describe(
  "gateways in processes of their own that call each other over TLS",
  { skip: NO_POSTGRES || NO_OPENSSL },
  () => {
    let server: PostgresServer;
    before(async () => void (server = await startPostgres()));
    after(() => server.end());

    /** Starts a front that ends with the test. */
    async function front(world: World, ...given: Parameters<typeof startLinkFront>) {
      const started = await startLinkFront(...given);
      world.onEnd(() => started.close());
      return started;
    }

    test("show each other's runs live, and go on with those of one that dies; a wrong certificate and http are refused", () =>
      withWorld(async (world) => {
        const folder = await world.folder();
        const [right, wrong] = ["right", "wrong"].map((name) => makeCertificate(folder, name));
        assert.ok(right && wrong);
        const model = await startHeldModel(world);
        const { baseUrl } = model;
        const records = server.url(await server.createDatabase());
        const env = linkEnvironment(records, { NODE_EXTRA_CA_CERTS: right.authority, DENO_CERT: right.authority });
        const fronts = [await front(world, right), await front(world, right), await front(world, wrong)] as const;
        const [a, b, c, d] = await Promise.all([
          ...fronts.map((one) => startBehind(world, one, { baseUrl, env })),
          world.killableGateway({
            baseUrl,
            env: {
              ...env,
              POSTERN__CLUSTER__INSECURE: "true",
              POSTERN__CLUSTER__ADVERTISE_URL: "http://192.0.2.1:42617",
            },
          }),
        ]);
        assert.ok(a && b && c && d);

        const live = await followElsewhere({ owner: a, other: b, word: "one " });
        model.goOn();
        await checkFollowed(live, [a, b], { isWhole: true });
        assert.deepEqual(live.stream.comments.filter((comment) => comment.includes("live")), []);

        for (
          const [owner, reason] of [[c, /cannot be made/], [d, /cannot be used: .*https.*insecure = true/]] as const
        ) {
          const run = await startRun(owner);
          const stream = new FollowedStream(b.call(`/v1/runs/${run}/events`));
          await until(() => stream.comments.some((comment) => reason.test(comment)), () => stream.text);
          assert.doesNotMatch(stream.events, /one/, "nothing is live");
          model.goOn();
          await stream.ended;
          assert.equal(stream.events, await (await owner.call(`/v1/runs/${run}/events`)).text());
        }

        model.words = ["lost ", "words"];
        const lost = await followElsewhere({ owner: a, other: b, word: "lost " });
        model.words = ["the ", "answer"];
        const begun = model.begun();
        await a.kill();
        await until(() => model.begun() > begun, "nobody goes on");
        model.goOn();
        const events = await checkFollowed(lost, [b, c], { isWhole: false });
        assert.equal(events.filter(({ type }) => type === "turn_restart").length, 1);
      }));
  },
);
