import { isRecord } from "../../base/json.ts";
import { brokenReply } from "../upstream/upstream_error.ts";
import { sendUpstream, type UpstreamSettings } from "../upstream/upstream_http.ts";
import { MAX_DIMENSIONS } from "../../storage/vectors.ts";
import type { EmbedRequest } from "../provider.ts";

/** A request for vectors. */
export interface EmbeddingsCall {
  readonly headers: Readonly<Record<string, string>>;
  readonly request: EmbedRequest;
  readonly signal: AbortSignal;
}

const MAX_REPLY_BYTES = 32 * 1024 * 1024;

/**
 * Asks for the vectors of texts, by `POST /embeddings`.
 * Source: https://platform.openai.com/docs/api-reference/embeddings
 * @throws {ProviderError} also for a reply that does not have one vector for each text, all of one length; {CancelError}
 */
export async function readEmbeddings(
  settings: UpstreamSettings,
  { headers, request: { model, texts }, signal }: EmbeddingsCall,
): Promise<readonly Float32Array[]> {
  const { upstream } = settings;
  const exchange = await sendUpstream(settings, {
    path: "/embeddings",
    headers,
    body: JSON.stringify({ model, input: texts, encoding_format: "float" }),
    signal,
  });
  const { text, cut } = await exchange.text(MAX_REPLY_BYTES);
  if (cut) throw brokenReply(upstream, `its list of embeddings is longer than ${MAX_REPLY_BYTES} bytes`);
  const vectors = vectorsOf(text, texts.length);
  if (vectors === undefined) throw brokenReply(upstream, `it has not ${texts.length} embeddings of one length`);
  return vectors;
}

/** Returns the vectors of a reply by their index; undefined unless there are so many, all of one length and of finite numbers. */
function vectorsOf(text: string, count: number): readonly Float32Array[] | undefined {
  const data = dataOf(text);
  if (data?.length !== count) return undefined;
  const vectors: Float32Array[] = [];
  for (const [place, item] of data.entries()) {
    const { index = place, embedding } = isRecord(item) ? item : {};
    const vector = toVector(embedding);
    if (typeof index !== "number" || vector === undefined) return undefined;
    vectors[index] = vector;
  }
  const dimensions = vectors[0]?.length;
  const isWhole = vectors.length === count && Object.keys(vectors).length === count;
  return isWhole && vectors.every(({ length }) => length === dimensions) ? vectors : undefined;
}

function toVector(value: unknown): Float32Array | undefined {
  if (!Array.isArray(value) || value.length < 1 || value.length > MAX_DIMENSIONS) return undefined;
  if (!value.every((number) => typeof number === "number")) return undefined;
  const vector = Float32Array.from(value);
  return vector.every(Number.isFinite) && vector.some((number) => number !== 0) ? vector : undefined;
}

function dataOf(text: string): readonly unknown[] | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    return isRecord(parsed) && Array.isArray(parsed["data"]) ? parsed["data"] : undefined;
  } catch {
    return undefined;
  }
}
