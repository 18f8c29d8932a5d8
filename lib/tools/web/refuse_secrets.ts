import { ToolError } from "../../base/errors.ts";
import type { Redactor } from "../../base/redact.ts";

/**
 * Refuses what a model sends to the network when it holds a known secret: the model cannot know one, so something has told it.
 * @param parts texts by what they are, as `URL`
 * @throws {ToolError} `secret_in_request`
 */
export function refuseSecrets(parts: Readonly<Record<string, string>>, { redact }: Pick<Redactor, "redact">): void {
  const isSecret = (text: string) => redact(text) !== text;
  const found = Object.entries(parts).find(([, text]) => isSecret(text) || isSecret(decoded(text)));
  if (found === undefined) return;
  throw new ToolError(
    "secret_in_request",
    `Cannot send the request: its ${
      found[0]
    } holds a value that is known as a secret; leave it out, the credentials of a host are ` +
      "added by [http_request.credentials]",
  );
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
