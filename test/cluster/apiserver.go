package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// Admission plugins that wait for a controller which does not run here.
var withoutTheirController = strings.Join([]string{
	"TaintNodesByCondition",        // taints each new node until the node lifecycle controller has seen it
	"StorageObjectInUseProtection", // adds finalizers that the volume protection controllers remove
	"PodGroupProtection",           // likewise for pod groups
}, ",")

// serveAPI runs kube-apiserver on the listener until ctx ends. Further flags are added to its own.
func serveAPI(ctx context.Context, listener net.Listener, etcdURL string, creds *credentials, further []string) error {
	flags := []string{
		"--etcd-servers=" + etcdURL,
		"--tls-cert-file=" + creds.servingCert,
		"--tls-private-key-file=" + creds.servingKey,
		"--token-auth-file=" + creds.tokens,
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file=" + creds.serviceAccountKey,
		"--service-account-key-file=" + creds.serviceAccountKey,
		"--service-cluster-ip-range=10.96.0.0/16", // addresses to hand out; no packet goes there
		"--advertise-address=" + loopback,
		"--endpoint-reconciler-type=none", // an EndpointSlice may not hold the loopback address
		"--allow-privileged=true",
		"--shutdown-watch-termination-grace-period=1s", // by default the server waits a minute for watchers to leave
		"--disable-admission-plugins=" + withoutTheirController,
		// Stricter than a stock cluster: it shows missing rights on finalizers subresources in our RBAC.
		"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
	}

	s := options.NewServerRunOptions()
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	named := s.Flags()
	for _, set := range named.FlagSets {
		fs.AddFlagSet(set)
	}
	if err := fs.Parse(append(flags, further...)); err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	s.SecureServing.Listener = listener
	s.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	s.SecureServing.BindAddress = listener.Addr().(*net.TCPAddr).IP

	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	completed, err := s.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) != 0 {
		return errors.NewAggregate(errs)
	}
	return app.Run(ctx, completed)
}
