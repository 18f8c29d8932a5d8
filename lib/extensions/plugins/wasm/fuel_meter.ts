import { ModuleFailure } from "./module_failure.ts";

/** Units that a module may use before it asks for more. Each time it asks, it is told to stop when its call is over. */
const SLICE = 100_000;

/** Exported global of a metered module with the units that are left until it asks again. */
export interface FuelLeft {
  value: number;
}

/**
 * Counter of the fuel of one module. The module counts by itself and asks here for more; functions of the host charge what they do.
 * A call uses the same fuel wherever it runs.
 */
export class FuelMeter {
  readonly #check: () => void;
  #limit = 0;
  #what = "it";
  #used = 0;
  #granted = 0;
  #left: FuelLeft | undefined;

  /** @param check throws when the call is over, as after its time limit */
  constructor(check: () => void) {
    this.#check = check;
  }

  /** Units that were used since `start`. */
  get used(): number {
    return this.#used + this.#granted - (this.#left?.value ?? 0);
  }

  /** Starts the count over. @param limit units until `out_of_fuel`; 0: none. @param what the work, for the message. Default: a call */
  start(limit: number, what = "it"): void {
    this.#limit = limit;
    this.#what = what;
    this.#used = 0;
    this.#granted = 0;
    if (this.#left !== undefined) this.#left.value = 0;
  }

  /** Counts by the global of a module that was just instantiated. What it has used until then stays counted. */
  attach(left: FuelLeft): void {
    this.#used += this.#granted - left.value;
    this.#granted = 0;
    left.value = 0;
    this.#left = left;
  }

  /** Takes the units that are left, below 0, and returns the next ones. @throws {ModuleFailure} `out_of_fuel`; whatever the check throws */
  tick(left: number): number {
    this.#used += this.#granted - left;
    this.#granted = 0;
    if (this.#left !== undefined) this.#left.value = 0;
    this.#requireMore();
    const next = this.#limit === 0 ? SLICE : Math.min(SLICE, this.#limit - this.#used);
    this.#granted = next;
    return next;
  }

  /** Charges units for the work of the host. @throws as `tick` */
  charge(units: number): void {
    if (this.#left === undefined) {
      // A start function runs before its global can be reached
      this.#used += units;
      return this.#requireMore();
    }
    // Not in the global, which holds 32 bits: a large charge would come out as a gift
    const left = this.#left.value - units;
    this.#left.value = left < 0 ? this.tick(left) : left;
  }

  #requireMore(): void {
    this.#check();
    if (this.#limit === 0 || this.#used <= this.#limit) return;
    throw new ModuleFailure("out_of_fuel", `${this.#what} used all of its ${this.#limit} units of fuel`);
  }
}
