import { ToolError } from "../../base/errors.ts";
import type { KnownSecrets } from "../../base/redact.ts";

/**
 * Refuses what a model sends to the network when it holds a known secret: the model cannot know one, so something has told it.
 * @param parts texts by what they are, such as `URL`
 * @throws {ToolError} `secret_in_request`
 */
export function refuseSecrets(parts: Readonly<Record<string, string>>, { masked }: Pick<KnownSecrets, "masked">): void {
  for (const [part, text] of Object.entries(parts)) {
    const [secret] = masked([text, decoded(text)]);
    if (secret === undefined) continue;
    throw new ToolError(
      "secret_in_request",
      `Cannot send the request: its ${part} holds a value that is known as a secret (${secret.name}); leave it out, the ` +
        "credentials of a host are added by [http_request.credentials]",
    );
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
