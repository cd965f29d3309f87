// Package reconcile holds the controllers of the four API types and of the routes they publish.
//
// Each type has a small reconciler that reads, calls pure builders and pure status functions that live beside it, and
// writes what differs. Reads come from the manager's cache, except where a decision must not rest on a stale view.
// Objects read from the cache are shared: nothing in this package changes one, it changes copies.
package reconcile
