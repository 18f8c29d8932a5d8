import { createSystemRandom } from "../../lib/base/random.ts";

/** A fresh admin token for one start, `pst_` + 32 random bytes base64url. */
export function randomControlToken(): string {
  return `pst_${Buffer.from(createSystemRandom().bytes(32)).toString("base64url")}`;
}
