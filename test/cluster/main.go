// Command cluster is a real Kubernetes control plane in one process: etcd, kube-apiserver, and the controllers that
// this project's behaviour rests on (garbage collection, namespaces, service accounts, EndpointSlices) or its chart's
// (Deployments, ReplicaSets). It needs no container engine, no root and no network beyond 127.0.0.1. It serves the
// end-to-end tests, the tests of the chart, the demo and the claim benchmark; the node agent in test/node plays scheduler
// and kubelet beside it.
//
// It logs to stderr and prints one line to stdout once /readyz answers ok. SIGTERM ends it with exit code 0, and a
// second start with the same --data-dir finds the objects of the first. Arguments after its own flags and "--" are
// flags of kube-apiserver.
//
// It is a Go module of its own, because k8s.io/kubernetes drags in a dependency tree that nobody should have to
// download in order to build the product.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
)

// loopback is the only address that anything here binds.
const loopback = "127.0.0.1"

// settings are the values of the flags.
type settings struct {
	dataDir    string
	kubeconfig string
	securePort int
	etcdPort   int
}

func main() {
	var s settings
	flag.StringVar(&s.dataDir, "data-dir", ".cluster", "directory of everything the control plane keeps")
	flag.StringVar(&s.kubeconfig, "kubeconfig", "", "where to write the administrator's kubeconfig (default <data-dir>/kubeconfig)")
	flag.IntVar(&s.securePort, "secure-port", 0, "port of the API server on 127.0.0.1 (0 picks a free one)")
	flag.IntVar(&s.etcdPort, "etcd-port", 0, "port of etcd on 127.0.0.1 (0 picks a free one)")
	flag.Parse()
	if s.kubeconfig == "" {
		s.kubeconfig = filepath.Join(s.dataDir, "kubeconfig")
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// run starts the parts in the order of their needs, says when they are ready, and returns once all have ended: nil
// after ctx ended, else what failed.
func run(ctx context.Context, s settings) error {
	start := time.Now()
	unlock, err := lockDir(s.dataDir)
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	defer unlock()
	creds, err := loadCredentials(filepath.Join(s.dataDir, "credentials"))
	if err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	listener, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(s.securePort)))
	if err != nil {
		return fmt.Errorf("--secure-port: %w", err)
	}
	etcd, err := startEtcd(filepath.Join(s.dataDir, "etcd"), s.etcdPort)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer etcd.Close() // after the API server, which needs its storage until the end

	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() {
		served <- serveAPI(ctx, listener, "http://"+etcd.Clients[0].Addr().String(), creds, flag.Args())
		cancel()
	}()
	admin := creds.adminConfig(listener.Addr())
	err = func() error {
		client, err := kubernetes.NewForConfig(admin)
		if err != nil {
			return err
		}
		if err := waitReady(ctx, client); err != nil {
			return err
		}
		if err := startControllers(ctx, admin, client); err != nil {
			return err
		}
		if err := writeKubeconfig(s.kubeconfig, admin); err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		fmt.Printf("ready in %.1fs: %s\n", time.Since(start).Seconds(), admin.Host)
		return nil
	}()
	if err != nil {
		cancel()
	}
	return errors.Join(<-served, err)
}

// lockDir makes the directory and keeps others from using it: a second etcd would wait for the first without a word.
func lockDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s is in use by another control plane: %w", dir, err)
	}
	return func() { lock.Close() }, nil // closing it unlocks it
}

// waitReady returns once /readyz answers ok, or when ctx ends.
func waitReady(ctx context.Context, client kubernetes.Interface) error {
	for client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error() != nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
