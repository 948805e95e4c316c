import { crashTrials } from "./crash.ts";

crashTrials("sqlite");
