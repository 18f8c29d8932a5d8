import { ToolError } from "../../base/errors.ts";
import type { UrlPolicy } from "../net/url_policy.ts";

/**
 * Policy of a browser's way that can be narrowed. The browser has requests that DevTools does not show before they are sent: WebSockets,
 * `rel=prefetch`. Once a secret was filled, they find no connection to hosts that the secret may not go to.
 */
export class NarrowedWay implements Pick<UrlPolicy, "check"> {
  readonly #policy: Pick<UrlPolicy, "check">;
  #mayReach: ((url: URL) => boolean) | undefined;

  constructor(policy: Pick<UrlPolicy, "check">) {
    this.#policy = policy;
  }

  /** Lets new connections reach only what a function allows. A tunnel is asked about by its scheme, host and port alone. */
  narrow(mayReach: (url: URL) => boolean): void {
    this.#mayReach = mayReach;
  }

  check(...[text, rules, options]: Parameters<UrlPolicy["check"]>): ReturnType<UrlPolicy["check"]> {
    const url = URL.parse(text);
    if (this.#mayReach === undefined || (url !== null && this.#mayReach(url))) {
      return this.#policy.check(text, rules, options);
    }
    const host = JSON.stringify(url?.host.slice(0, 100) ?? "the address");
    const reason = "a secret was filled in this browser, and nobody could look at what would be sent there";
    return Promise.reject(new ToolError("url_not_allowed", `Cannot reach ${host}: ${reason}`));
  }
}
