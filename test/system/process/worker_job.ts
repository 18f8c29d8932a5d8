import * as nodeModule from "node:module";
import process from "node:process";
import { answerJobs } from "../../../lib/system/process/workers.ts";

let jobs = 0;

// Runs as a thread, for the tests of workers
answerJobs((input, { stopped }) => {
  jobs++;
  switch (input) {
    case "count":
      return jobs;
    case "end later":
      // No job is there to hear of it
      return void setImmediate(() => process.exit());
    case "environment":
      return Object.keys(process.env);
    case "compile cache":
      return nodeModule.getCompileCacheDir?.();
    case "busy":
      while (!stopped());
      return "stopped";
    case "heap": {
      const kept: number[][] = [];
      for (;;) kept.push(Array.from({ length: 1000 }, (_, i) => i * Math.PI));
    }
    case "throw":
      throw new Error("broken on purpose");
    default:
      return { got: input };
  }
});
