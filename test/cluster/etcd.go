package main

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd runs a single-member etcd that keeps its data in dir and serves clients on the port (0: a free one). It
// returns once the member leads itself, which means it can serve.
func startEtcd(dir string, port int) (*embed.Etcd, error) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.LogLevel = "error"
	// A single member has no peers to talk to, so it needs no peer listener; the advertised address is only a name.
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: fmt.Sprintf("%s:%d", loopback, port)}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	// Test data need not survive a power cut, and fsync is most of what a write costs.
	cfg.UnsafeNoFsync = true
	// Nobody else can win the election, so it need not wait.
	cfg.TickMs, cfg.ElectionMs = 10, 100

	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		etcd.Close()
		return nil, err
	case <-time.After(30 * time.Second):
		etcd.Close()
		return nil, errors.New("not ready after 30s")
	}
}
