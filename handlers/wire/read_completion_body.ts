import { checkBody } from "./check_body.ts";
import { type CompletionBody, completionSchema } from "./completion_schema.ts";
import { isCompletionBody } from "./is_completion_body.ts";

/**
 * Checks a parsed completions body and returns it as it is. The check by hand decides; the schema is asked only to say what is
 * wrong, so that a good request never pays for it.
 * @throws {HttpError} 400 `invalid_request` naming the field at fault
 */
export function readCompletionBody(body: unknown): CompletionBody {
  return isCompletionBody(body) ? body : checkBody(completionSchema, body, []);
}
