import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import type { GuardedReply } from "../../system/net/guarded_fetch.ts";
import { decodePage } from "../../web/decode_page.ts";
import { forbiddenBy, MAX_ROBOTS_BYTES, parseRobots, type RobotsRule } from "../../web/robots.ts";
import type { ContextWith } from "../runtime/define_tool.ts";
import { createSlotCache, type SlotCache } from "./slot_cache.ts";

/** Product token of robots.txt: the name in front of the User-Agent. */
const AGENT = "postern";
const MAX_WAIT_MS = 10_000;
/** RFC 9309 section 2.4: no longer than 24 hours. */
const TTL_MS = 86_400_000;
const SLOTS = 256;
const MAX_CACHED_BYTES = 65_536;
const WAY_OUT = "[web_fetch] respect_robots = false fetches it all the same";

const rulesSchema = v.array(v.object({ allow: v.boolean(), pattern: v.string(), line: v.number() }));

type RobotsContext = Pick<
  ContextWith<"guardedFetch" | "documents">,
  "config" | "services" | "signal" | "clock" | "log"
>;

/** Error before a request is sent to an origin whose robots.txt is not known yet. */
export class RobotsUnknown extends ToolError {
  readonly url: URL;
  constructor(url: URL) {
    super("robots_unknown", `Cannot fetch from "${url.host}": its robots.txt is not known`);
    this.url = url;
  }
}

/** Rules of the origins that one call leads to. */
export class RobotsOfCall {
  readonly #context: RobotsContext;
  readonly #cache: SlotCache<readonly RobotsRule[]>;
  readonly #known = new Map<string, readonly RobotsRule[]>();

  constructor(context: RobotsContext) {
    const { services: { documents }, clock, log } = context;
    this.#context = context;
    this.#cache = createSlotCache({
      documents,
      clock,
      log,
      family: "robots",
      slots: SLOTS,
      maxBytes: MAX_CACHED_BYTES,
      schema: rulesSchema,
    });
  }

  /** Refuses an address that a rule of its site forbids. @throws {RobotsUnknown}; {ToolError} `robots_forbidden` */
  check(url: URL): void {
    const rules = this.#known.get(url.origin);
    if (rules === undefined) throw new RobotsUnknown(url);
    const rule = forbiddenBy(rules, url.pathname + url.search);
    if (rule === undefined) return;
    throw new ToolError(
      "robots_forbidden",
      `Cannot fetch from "${url.host}": line ${rule.line} of its robots.txt forbids it ("Disallow: ${
        rule.pattern.slice(0, 100)
      }"); ${WAY_OUT}`,
    );
  }

  /** Learns the rules of an origin. @throws {ToolError} `robots_unavailable`; what the URL policy refuses */
  async learn({ origin, host }: URL, timeoutMs: number): Promise<void> {
    const cached = await this.#cache.get(origin);
    const rules = cached ?? await this.#ask(`${origin}/robots.txt`, host, timeoutMs);
    if (cached === undefined) await this.#cache.set(origin, rules, TTL_MS);
    this.#known.set(origin, rules);
  }

  async #ask(url: string, host: string, timeoutMs: number): Promise<readonly RobotsRule[]> {
    const { config, services, signal } = this.#context;
    const guardedFetch = await services.guardedFetch();
    let reply: GuardedReply;
    try {
      reply = await guardedFetch({
        method: "GET",
        url,
        guard: { rules: config.url_access },
        maxBytes: MAX_ROBOTS_BYTES,
        timeoutMs: Math.min(timeoutMs, MAX_WAIT_MS),
        signal,
      });
    } catch (error) {
      if (!(error instanceof ToolError)) throw error;
      // RFC 9309 section 2.3.1.2: more than five redirects mean that there is no robots.txt
      if (error.code === "fetch_redirects") return [];
      if (error.code !== "fetch_failed" && error.code !== "fetch_timeout") throw error;
      throw unavailable(host, "could not be fetched", error);
    }
    if (reply.status >= 500) throw unavailable(host, `was answered with status ${reply.status}`);
    if (reply.status >= 400) return [];
    return parseRobots(decodePage(reply.body, "utf-8").text, AGENT);
  }
}

function unavailable(host: string, reason: string, cause?: ToolError): ToolError {
  const why = cause === undefined ? "" : ` (${cause.message})`;
  return new ToolError(
    "robots_unavailable",
    `Cannot fetch from "${host}": its robots.txt ${reason}${why}, which forbids all of it; ${WAY_OUT}`,
    { cause },
  );
}
