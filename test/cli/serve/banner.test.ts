import assert from "node:assert/strict";
import { test } from "node:test";
import { type BannerFacts, bannerText, PAIRED, pairingText } from "../../../cli/serve/banner.ts";

const FACTS: BannerFacts = {
  ...{ version: "0.1.0", pid: 7, address: "http://127.0.0.1:42617/", dashboard: "http://127.0.0.1:42617/" },
  ...{ host: "127.0.0.1", port: 42617, pairing_code: null, provider: "offline", model: "assistant" },
  provider_reason: "no API key was found",
  supports_tools: null,
  halted: [],
  containment: { kind: "uncontained", text: "Commands are not contained" },
  ...{ workspace: "/work", data_dir: "/data", schema: null, gateway: null, advertise_url: null, config_file: null },
};

const PAIRING = { requiresPairing: true, pairing: PAIRED, named: (message: string) => message };
const shown = (more: Partial<BannerFacts>) =>
  bannerText({ ...FACTS, ...more }, { ...PAIRING, dataDir: undefined, columns: undefined });

test("a gateway that shows no code says why, and the command for a further one as it is to be typed", () => {
  const text = (dataDir: string | undefined) => pairingText("http://127.0.0.1:42617/", { ...PAIRING, dataDir });
  assert.equal(text(undefined), "Paired already. A further code: postern pair\n");
  assert.equal(text("/data/2"), "Paired already. A further code: postern pair --data-dir /data/2\n");
  assert.match(text("/my data"), /--data-dir "\/my data"\n$/);
});

test("the banner says what is halted, and what lets it go on", () => {
  assert.match(
    shown({ halted: ["all work, since noon"] }),
    /Halted +all work, since noon; postern resume lets it go on\n/,
  );
  assert.doesNotMatch(shown({}), /Halted/);
});

test("the banner says where the records are, and which gateway of a cluster this is", () => {
  const alone = shown({});
  assert.match(alone, /Records +\/data\n/);
  assert.doesNotMatch(alone, /Cluster|PostgreSQL/);
  const member = shown({ schema: "postern", gateway: "gw_1" });
  assert.match(member, /Records +PostgreSQL, schema "postern"\n +Data +\/data\n/);
  assert.match(member, /Cluster +gw_1; postern cluster status shows all gateways\n/);
  const reached = shown({ gateway: "gw_1", advertise_url: "https://gw-1.example" });
  assert.match(reached, /Cluster +gw_1, which the others reach at https:\/\/gw-1\.example; postern cluster status/);
});

test("the banner says when the model is shown no tools", () => {
  assert.match(shown({ supports_tools: false }), /Tools +none reach this model, whose chat template knows none/);
  for (const supports_tools of [true, null]) assert.doesNotMatch(shown({ supports_tools }), /Tools/);
});
