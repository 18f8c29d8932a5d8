/** Words and bounds of one search. */
export interface WebQuery {
  readonly query: string;
  /** Results that are wanted: no more than the provider's `maxResults` */
  readonly count: number;
  /** The provider's key. Empty for a provider without keys */
  readonly key: string;
}

/** Request to the API of a search provider. The path is joined to the address of the API. */
export interface SearchRequest {
  readonly method: "GET" | "POST";
  /** As `/search`, with the query of the URL where there is one. Never holds the key */
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Reply of a search provider, whatever its status. */
export interface SearchReply {
  readonly status: number;
  readonly text: string;
}

/** Found page. All texts are from outside: cleaned and cut before they are shown. */
export interface SearchResult {
  readonly title: string;
  readonly url: string;
  readonly snippet: string;
  /** Date of the page as the provider gives it. Empty where it gives none */
  readonly date: string;
}

/**
 * Reason why a reply holds no results.
 *
 * `key`: the key was refused. `quota`: too many searches, or none paid for. `blocked`: the provider wants a person to prove to be one.
 * `format`: a SearXNG instance does not give JSON. `engines`: no search engine behind the provider answered. `unavailable`: the provider
 * itself failed. `refused`: the provider refused the request. `changed`: the reply has no form that is known here.
 */
export type SearchProblem =
  | "key"
  | "quota"
  | "blocked"
  | "format"
  | "engines"
  | "unavailable"
  | "refused"
  | "changed";

/** Meaning of a reply. `results` may be empty only where the provider itself says that it found nothing. */
export type WebAnswer =
  | { readonly kind: "results"; readonly results: readonly SearchResult[] }
  | {
    readonly kind: "failed";
    readonly problem: SearchProblem;
    /** The provider's own words, from outside. Empty where it has none */
    readonly says: string;
  };

/** A search service: where its API is, how it is asked, and what its replies mean. */
export interface SearchProvider {
  /** Address of the API. undefined for a self-hosted one, whose address must be configured */
  readonly url: string | undefined;
  /** Environment variable that holds the key by the provider's own convention. undefined: the provider has no keys */
  readonly keyEnv: string | undefined;
  /** Most results that one request gives */
  readonly maxResults: number;
  request(query: WebQuery): SearchRequest;
  read(reply: SearchReply): WebAnswer;
}
