/** An entry of GET /v1/models. `created` is seconds since the epoch, 0 when the provider says nothing. */
export interface ModelEntry {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: string;
  /** Tokens of input and output together, where the provider says */
  readonly context_length?: number | undefined;
}
