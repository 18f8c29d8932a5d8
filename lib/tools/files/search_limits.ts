/** Bounds of one search, and of each file in it. */
export interface SearchLimits {
  /** Files and folders met */
  readonly entries: number;
  /** Bytes of one file that are looked at */
  readonly fileBytes: number;
  readonly totalBytes: number;
}

/** Apart from the search itself, which the threads alone load. */
export const SEARCH_LIMITS: SearchLimits = { entries: 100_000, fileBytes: 4_194_304, totalBytes: 1_073_741_824 };
