// Every page: times in the reader's own zone, the keys, forms that are sent once.
import { listenToKeys } from "./keys.js";
import { matchFormToAgent, sendOnce } from "./start.js";
import { countDown, localTimes } from "./times.js";

localTimes(document);
countDown();
listenToKeys();
matchFormToAgent();
sendOnce();
