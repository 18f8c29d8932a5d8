/** User and password of each URL in a text replaced by `***`. */
export function maskUserinfo(text: string): string {
  return text.replace(/:\/\/[^\s/'"]*@/g, "://***@");
}
