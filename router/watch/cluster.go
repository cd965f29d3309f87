package watch

import (
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The client's health check of its connection to the API server, in seconds. A connection that is dead without a FIN
// is noticed after their sum; client-go's own 45 would leave the table behind for longer than half a minute after
// the network healed. client-go reads them from the environment when it opens its transport, and offers no other way.
const (
	pingAfterSilence = "10"
	pingTimeout      = "5"
)

// RESTConfig reads the way to the API server from a kubeconfig file, or when that is empty from the service account
// of the router's pod.
func RESTConfig(kubeconfig string) (*rest.Config, error) {
	setDefaultEnv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", pingAfterSilence)
	setDefaultEnv("HTTP2_PING_TIMEOUT_SECONDS", pingTimeout)
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig is not set and this is no pod with a service account: %w", err)
		}
		return cfg, nil
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return cfg, nil
}

func setDefaultEnv(name, value string) {
	if _, set := os.LookupEnv(name); !set {
		os.Setenv(name, value)
	}
}

// scheme knows the few types that are read here; the scheme of all of Kubernetes costs megabytes.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	return s
}()

// client makes a client for one API group that speaks protobuf.
func client(cfg *rest.Config, gv schema.GroupVersion) (rest.Interface, error) {
	c := rest.CopyConfig(cfg)
	c.GroupVersion = &gv
	c.APIPath = "/apis"
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	c.UserAgent = "sandbox-router"
	// A list of all routes is large, and compressing it takes the API server longer than sending it.
	c.DisableCompression = true
	c.QPS = -1
	return rest.RESTClientFor(c)
}
