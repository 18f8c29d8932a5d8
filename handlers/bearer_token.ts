const BEARER = /^Bearer +([\x21-\x7e]+) *$/i;

/** The token of an `Authorization: Bearer` header, undefined for none and for another scheme. Source: RFC 6750 section 2.1 */
export function bearerTokenOf(authorization: string | null | undefined): string | undefined {
  return BEARER.exec(authorization ?? "")?.[1];
}
