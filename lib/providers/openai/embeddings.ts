import { Buffer } from "node:buffer";
import { isRecord } from "../../base/json.ts";
import { MAX_DIMENSIONS } from "../../storage/vectors.ts";
import type { Embeddings, EmbedRequest } from "../provider.ts";
import { brokenReply } from "../upstream/upstream_error.ts";
import { sendUpstream, type UpstreamSettings } from "../upstream/upstream_http.ts";

/** A request for vectors. */
export interface EmbeddingsCall {
  readonly headers: Readonly<Record<string, string>>;
  readonly request: EmbedRequest;
  readonly signal: AbortSignal;
}

const MAX_REPLY_BYTES = 32 * 1024 * 1024;

/**
 * Asks for the vectors of texts or tokens, by `POST /embeddings`. Numbers are asked for in every case: not each server knows base64.
 * Source: https://platform.openai.com/docs/api-reference/embeddings
 * @throws {ProviderError} also for a reply that does not have one vector for each input, all of one length; {CancelError}
 */
export async function readEmbeddings(
  settings: UpstreamSettings,
  { headers, request: { model, input, dimensions, passed }, signal }: EmbeddingsCall,
): Promise<Embeddings> {
  const { upstream } = settings;
  const exchange = await sendUpstream(settings, {
    path: "/embeddings",
    headers,
    body: JSON.stringify({ ...passed, model, input, dimensions, encoding_format: "float" }),
    signal,
  });
  const { text, cut } = await exchange.text(MAX_REPLY_BYTES);
  if (cut) throw brokenReply(upstream, `its list of embeddings is longer than ${MAX_REPLY_BYTES} bytes`);
  const reply = replyOf(text);
  const vectors = vectorsOf(reply?.["data"], input.length);
  if (vectors === undefined) throw brokenReply(upstream, `it has not ${input.length} embeddings of one length`);
  return { vectors, tokens: tokensOf(reply?.["usage"]) };
}

/** Returns the vectors of a list by their index; undefined unless there are so many, all of one length and of numbers of 32 bits. */
function vectorsOf(data: unknown, count: number): Embeddings["vectors"] | undefined {
  if (!Array.isArray(data) || data.length !== count) return undefined;
  const vectors: (readonly number[] | Float32Array)[] = [];
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

function toVector(value: unknown): readonly number[] | Float32Array | undefined {
  const vector = typeof value === "string" ? fromBase64(value) : value;
  const isList = Array.isArray(vector) || vector instanceof Float32Array;
  if (!isList || vector.length < 1 || vector.length > MAX_DIMENSIONS) return undefined;
  // Larger numbers have no place in base64, nor in an index
  const isWhole = vector.every((number: unknown) => typeof number === "number" && Number.isFinite(Math.fround(number)));
  return isWhole ? vector : undefined;
}

/** Returns the vector of a server that writes base64 whatever it is asked for; undefined for another text. */
function fromBase64(text: string): Float32Array | undefined {
  const bytes = Buffer.from(text, "base64");
  if (bytes.length === 0 || bytes.length % 4 !== 0) return undefined;
  return Float32Array.from({ length: bytes.length / 4 }, (_, index) => bytes.readFloatLE(index * 4));
}

function tokensOf(usage: unknown): number | undefined {
  const { prompt_tokens: prompt, total_tokens: total } = isRecord(usage) ? usage : {};
  return [total, prompt].find((tokens): tokens is number => Number.isSafeInteger(tokens) && Number(tokens) >= 0);
}

function replyOf(text: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const parsed: unknown = JSON.parse(text);
    return isRecord(parsed) ? parsed : undefined;
  } catch {
    return undefined;
  }
}
