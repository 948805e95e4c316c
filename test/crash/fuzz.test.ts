import { crashTrials } from "./crash.ts";

crashTrials("sqlite", "fuzz");
crashTrials("postgres", "fuzz");
