import { isLoopbackName } from "../../lib/system/net/is_loopback_name.ts";
import { hostNameOf, type RequestTarget, toAuthority } from "../request_target.ts";
import type { GatewaySettings } from "../gateway_settings.ts";
import { httpError } from "../wire/error_codes.ts";

/**
 * On a loopback bind, the `Host` header and the target's authority agree and are loopback or in `allowed_hosts`: a page whose name
 * was rebound to 127.0.0.1 still sends its own name.
 * @throws {HttpError} 403 host_forbidden
 */
export function guardHost(request: Request, target: RequestTarget, settings: GatewaySettings): void {
  if (!settings.loopbackBind) return;
  const host = request.headers.get("host");
  if (host !== null && toAuthority(host, request.url.startsWith("https:")) !== target.authority) {
    throw forbidden("the Host header and the request's target name different hosts");
  }
  const name = hostNameOf(target.authority);
  if (isLoopbackName(name) || settings.allowedHosts.has(name) || settings.allowedHosts.has(target.authority)) return;
  throw forbidden("this host name is not the gateway's; add it to allowed_hosts in [gateway] if it is");
}

function forbidden(reason: string) {
  return httpError("host_forbidden", `Cannot serve this host: ${reason}`);
}
