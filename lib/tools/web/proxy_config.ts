import * as v from "valibot";
import { ToolError } from "../../base/errors.ts";
import { type ProxyChoice, shownProxy } from "../../system/net/proxy_choice.ts";
import { defineTool } from "../runtime/define_tool.ts";

/** `proxy_config`: tells which proxy requests of tools go through, and why (docs/design/tools.md "Web"). */
export const proxyConfig = defineTool({
  name: "proxy_config",
  description:
    "Tells which proxy tools and model requests go through, for a URL or for http and https, and why. Sends nothing",
  access: "read",
  enabled: "always",
  needs: ["proxyOf"],
  input: v.strictObject({
    op: v.pipe(v.picklist(["get"]), v.description("What to do: tell the proxy")),
    url: v.optional(
      v.pipe(v.string(), v.minLength(1), v.maxLength(8192), v.description("Address to tell the proxy of")),
    ),
  }),
  check({ url }) {
    if (url === undefined || /^https?:$/.test(URL.parse(url)?.protocol ?? "")) return;
    throw new ToolError("invalid_input", 'Cannot call "proxy_config": "url" must be an http or https address');
  },
  async run({ url }, { services }) {
    // A name that nobody's list has: what it gets is what every address without an entry gets
    const asked = url === undefined ? [`http://${ANY_HOST}/`, `https://${ANY_HOST}/`] : [url];
    const ways = asked.map((text) => toWay(new URL(text), services.proxyOf(new URL(text)), url === undefined));
    return { output: ways.map(wayLine).join("\n"), isError: false, data: { ways } };
  },
});

const ANY_HOST = "any-host.invalid";

/** Way of the requests to an address. */
interface Way {
  /** Host that was asked about, or the scheme where no URL was given. */
  readonly target: string;
  /** Without user and password; null for a direct connection. */
  readonly proxy: string | null;
  /** Setting or variable that decides; null when nothing names a proxy. */
  readonly source: string | null;
  readonly reason: string;
  /** Place where names are looked up: `local` or `proxy`. */
  readonly resolve: "local" | "proxy";
  /** Reason why the proxy cannot be used; null when there is none. */
  readonly problem: string | null;
}

function toWay(url: URL, { proxy, source, reason, resolve, problem }: ProxyChoice, isAny: boolean): Way {
  return {
    target: isAny ? url.protocol : `${url.protocol}//${url.host}`,
    proxy: proxy === undefined ? null : shownProxy(proxy),
    ...{ source, reason, resolve },
    problem: problem ?? null,
  };
}

function wayLine({ target, proxy, reason, resolve, problem }: Way): string {
  if (proxy === null) return `${target} direct, ${reason}`;
  if (problem !== null) return `${target} cannot be reached: ${problem}`;
  const place = resolve === "proxy"
    ? "the proxy looks names up, and no address is checked"
    : "names are looked up here";
  return `${target} through ${proxy}, ${reason}; ${place}`;
}
