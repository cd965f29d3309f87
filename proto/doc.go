// Package proto holds the words that the router, the controller, the runtime and their clients agree on:
// header names, labels and annotations, the validators of names and ports, and the error codes.
// It imports nothing of this module, so that every other package may import it.
package proto
