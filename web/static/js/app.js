// Every page: times in the reader's own zone, and the keys.
import { localTimes } from "./times.js";
import { listenToKeys } from "./keys.js";

localTimes(document);
listenToKeys();
