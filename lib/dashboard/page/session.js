/** The gateway's answer instead of the wanted reply; `status` 0 means that it did not answer. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} code
   * @param {string} message
   * @param {number} retryAfterSeconds
   */
  constructor(status, code, message, retryAfterSeconds) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** The page's own address with a slash at its end: under a mount at `/agent` the page may be served at `/agent`. */
const BASE = new URL(location.pathname.endsWith("/") ? location.pathname : `${location.pathname}/`, location.origin);

/**
 * The address of a route. Relative to the page, so that it works under any base path.
 * @param {string} path without a slash at its start
 */
export function addressOf(path) {
  return new URL(path, BASE);
}

/** Header of what is read every few seconds, which no person asked for: the gateway's log has a line an hour of it. */
const LOOK = { "x-postern-look": "1" };

/** Gateways that are mounted side by side in one server have a token each. */
const TOKEN_KEY = `postern_token ${BASE.pathname}`;

/**
 * The token, kept for this browser in localStorage, and the requests made with it. Tabs share the token: one that pairs or signs out
 * takes the others with it.
 * @param {{ onRefused: () => void }} options `onRefused` is called when the gateway no longer takes the token
 */
export function createSession({ onRefused }) {
  let { token, id: tokenId } = readKept();
  /** Paths that the token may not read @type {Set<string>} */
  const forbidden = new Set();

  /**
   * @param {string} next
   * @param {string} [id] of a token that was made for this browser, so that signing out revokes it
   */
  const setToken = (next, id = "") => {
    // A token that another tab has paired meanwhile stays
    const isOurs = readKept().token === token;
    use(next, id);
    if (next !== "" || isOurs) keep({ token, id });
  };

  /**
   * @param {string} next
   * @param {string} id
   */
  const use = (next, id) => {
    token = next;
    tokenId = id;
    forbidden.clear();
  };

  addEventListener("storage", ({ key }) => {
    // null: all of the storage was cleared
    if (key !== TOKEN_KEY && key !== null) return;
    const kept = readKept();
    if (kept.token === token) return;
    const hadToken = token !== "";
    use(kept.token, kept.id);
    if (token === "") onRefused();
    else if (!hadToken) location.reload();
  });

  /**
   * @param {string} path
   * @param {{ method?: string, headers?: Record<string, string>, body?: unknown, raw?: Blob, form?: FormData, signal?: AbortSignal }} [options] `raw` is sent as it is
   * @returns {Promise<Response>} with a status below 400, or 503 of /health
   */
  const request = async (path, { method = "GET", headers = {}, body, raw, form, signal } = {}) => {
    /** @type {Record<string, string>} */
    const sent = { ...headers };
    if (token !== "") sent["authorization"] = `Bearer ${token}`;
    if (body !== undefined) sent["content-type"] = "application/json";
    if (raw !== undefined) sent["content-type"] = raw.type;
    const usedToken = token;
    const response = await fetch(addressOf(path), {
      method,
      headers: sent,
      cache: "no-store",
      credentials: "omit",
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(raw === undefined ? {} : { body: raw }),
      ...(form === undefined ? {} : { body: form }),
      ...(signal === undefined ? {} : { signal }),
    }).catch(() => {
      throw new ApiError(0, "unreachable", "The gateway does not answer", 0);
    });
    if (response.ok) return response;
    const error = await toApiError(response);
    if (response.status === 401 && usedToken !== "" && usedToken === token) {
      setToken("");
      onRefused();
    }
    throw error;
  };

  /**
   * @param {string} path
   * @param {{ method?: string, headers?: Record<string, string>, body?: unknown }} [options]
   * @returns {Promise<any>} the reply's JSON; its shape is the route's contract
   */
  const json = async (path, options) => (await request(path, options)).json();

  return {
    hasToken: () => token !== "",
    setToken,
    request,
    /**
     * Forgets the token, and revokes one that was made for this browser.
     * @returns {Promise<boolean>} false when the gateway could not be told
     */
    async signOut() {
      const revoked = tokenId === ""
        ? undefined
        : request(`v1/tokens/${encodeURIComponent(tokenId)}`, { method: "DELETE" });
      setToken("");
      return revoked === undefined || revoked.then(() => true, (error) => error.status === 401);
    },
    json,
    /**
     * As `json`, for what is read every few seconds: what the token's scopes do not allow is not asked for again with this token,
     * for each refusal is in the gateway's audit.
     * @param {string} path
     * @returns {Promise<any>} undefined for what was refused before
     */
    async poll(path) {
      if (forbidden.has(path)) return undefined;
      const usedToken = token;
      try {
        return await json(path, { headers: LOOK });
      } catch (error) {
        if (/** @type {{ status?: number }} */ (error).status === 403 && usedToken === token) forbidden.add(path);
        throw error;
      }
    },
  };
}

/** @typedef {ReturnType<typeof createSession>} Session */

/** A token of the page, and the id of one that was made for it. @typedef {{ token: string, id: string }} KeptToken */

/** @returns {KeptToken} empty texts where nothing is kept */
function readKept() {
  try {
    const { token, id } = JSON.parse(localStorage.getItem(TOKEN_KEY) ?? "{}");
    if (typeof token === "string" && typeof id === "string") return { token, id };
  } catch {
    // The browser keeps nothing for this page, or something else was written there
  }
  return { token: "", id: "" };
}

/** @param {KeptToken} kept an empty token removes it */
function keep(kept) {
  try {
    if (kept.token === "") localStorage.removeItem(TOKEN_KEY);
    else localStorage.setItem(TOKEN_KEY, JSON.stringify(kept));
  } catch {
    // The browser keeps nothing for this page: the token lives as long as the tab
  }
}

/** @param {Response} response */
async function toApiError(response) {
  const retryAfter = Number(response.headers.get("retry-after") ?? 0);
  /** @type {{ error?: { code?: string, message?: string } }} */
  const body = await response.json().catch(() => ({}));
  const message = body.error?.message ?? `The gateway answered ${response.status}`;
  return new ApiError(response.status, body.error?.code ?? "unknown", message, retryAfter);
}
