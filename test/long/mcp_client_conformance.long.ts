import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { readClientScenarios, type Revision, REVISIONS, runClientScenario } from "../support/client_conformance.ts";

/** Scenarios that no revision requires and Postern's client does not pass, with the reason. All of them are extensions. */
const NOT_SHOWN: Readonly<Record<string, string>> = {
  "auth/client-credentials-jwt": "a client without a person proves itself by a secret, not by a key of its own",
  "auth/enterprise-managed-authorization":
    "a person signs in at the server's authorization server, not at that of an enterprise",
  "auth/dpop": "tokens are bearer tokens, which go to the server's address alone",
  "auth/dpop-nonce": "tokens are bearer tokens, which go to the server's address alone",
  "auth/wif-jwt-bearer": "a client without a person proves itself by a secret, not by the identity of its workload",
};
/** Scenarios that run at the same time. */
const AT_ONCE = 2;

describe("the official conformance suite, client part", {
  skip: "Deno" in globalThis ? "the suite runs on Node" : false,
}, () => {
  for (const revision of REVISIONS) {
    test(`passes all that ${revision} requires, and what it does not require save for what is named`, async (t) => {
      const { required, optional } = await readClientScenarios(revision);
      const shown = [...required, ...optional.filter((scenario) => !Object.hasOwn(NOT_SHOWN, scenario))];
      const failed = await runAll(shown, revision, (line) => t.diagnostic(line));
      for (const scenario of optional) {
        if (Object.hasOwn(NOT_SHOWN, scenario)) t.diagnostic(`not shown ${scenario}: ${NOT_SHOWN[scenario]}`);
      }
      assert.deepEqual(failed, []);
      const missing = Object.keys(NOT_SHOWN).filter((scenario) => !optional.includes(scenario));
      assert.deepEqual(missing, [], "the suite does not require what is left out");
    });
  }
});

/** Returns the scenarios that fail. */
async function runAll(
  scenarios: readonly string[],
  revision: Revision,
  say: (line: string) => void,
): Promise<readonly string[]> {
  const [waiting, failed] = [[...scenarios], [] as string[]];
  const work = async () => {
    for (let scenario = waiting.shift(); scenario !== undefined; scenario = waiting.shift()) {
      const { passes, says } = await runClientScenario(scenario, revision);
      say(`${passes ? "passes" : "FAILS"} ${scenario}: ${says.join("; ")}`);
      if (!passes) failed.push(scenario);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return failed;
}
