// Every page: times in the reader's own zone, the keys, forms that are sent once.
import { listenToKeys } from "./keys.js";
import { matchModelsToAgent, sendOnce } from "./start.js";
import { localTimes } from "./times.js";

localTimes(document);
listenToKeys();
matchModelsToAgent();
sendOnce();
