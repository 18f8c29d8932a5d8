import { isTimezone } from "../base/zoned_time.ts";
import type { Config } from "./config.ts";
import type { KeyPath } from "./toml.ts";

/** Contradiction in `[[notify]]`, or in the settings of answer links. */
interface NotifyContradiction {
  readonly path: KeyPath;
  readonly reason: string;
}

type Rule = Config["notify"][number];

/** Keys that each way needs. Others of these keys are for another way. */
const NEEDED: Readonly<Record<Rule["kind"], readonly ("url" | "secret_env" | "topic_env" | "token_env" | "user_env" | "command")[]>> = {
  webhook: ["url", "secret_env"],
  ntfy: ["topic_env"],
  pushover: ["token_env", "user_env"],
  command: ["command"],
};

/** Finds contradictions of `[[notify]]`, and answer links without the address that they begin with. */
export function* notifyChecks({ notify, gateway }: Config): Iterable<NotifyContradiction> {
  if (gateway.answer_links && gateway.public_url === "") {
    yield { path: ["gateway", "answer_links"], reason: "a link begins with gateway.public_url, which is not set" };
  }
  if (gateway.public_url !== "" && !isPlain(gateway.public_url)) {
    yield { path: ["gateway", "public_url"], reason: "it may have no user, query or fragment" };
  }
  for (const [index, rule] of notify.entries()) {
    const path = (key: keyof Rule): KeyPath => ["notify", index, key];
    if (notify.findIndex(({ name }) => name === rule.name) < index) {
      yield { path: path("name"), reason: "another rule has this name" };
    }
    const missing = NEEDED[rule.kind].find((key) => rule[key].length === 0);
    if (missing !== undefined) yield { path: path(missing), reason: `kind = "${rule.kind}" needs it` };
    const [start, end] = rule.quiet_hours.split("-");
    if (start !== undefined && start !== "" && start === end) {
      yield { path: path("quiet_hours"), reason: "it begins and ends at the same time" };
    }
    if (rule.timezone !== "" && !isTimezone(rule.timezone)) {
      yield { path: path("timezone"), reason: "it must be an IANA time zone, such as Europe/Berlin" };
    }
  }
}

function isPlain(address: string): boolean {
  const url = URL.parse(address);
  return url !== null && url.username === "" && url.password === "" && url.search === "" && url.hash === "";
}
