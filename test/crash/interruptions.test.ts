import { crashTrials } from "./crash.ts";

crashTrials("postgres", "interruptions");
