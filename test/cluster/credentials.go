package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// credentials are the keys and tokens of one control plane. They are made at the first start and kept in files, so
// that a kubeconfig outlives a restart.
type credentials struct {
	servingCert, servingKey string // paths of PEM files; the certificate is self-signed
	serviceAccountKey       string // path of the PEM key that signs service account tokens
	tokens                  string // path of the API server's token file
	adminToken              string
	servingCertPEM          []byte
}

// loadCredentials reads the credentials in dir, or makes them if there are none.
func loadCredentials(dir string) (*credentials, error) {
	c := &credentials{
		servingCert:       filepath.Join(dir, "serving.crt"),
		servingKey:        filepath.Join(dir, "serving.key"),
		serviceAccountKey: filepath.Join(dir, "service-account.key"),
		tokens:            filepath.Join(dir, "tokens.csv"),
	}
	// The token file is written last, so it tells whether the others are whole.
	if _, err := os.Stat(c.tokens); errors.Is(err, fs.ErrNotExist) {
		if err := c.create(dir); err != nil {
			return nil, err
		}
	}
	tokens, err := os.ReadFile(c.tokens)
	if err != nil {
		return nil, err
	}
	c.adminToken, _, _ = strings.Cut(string(tokens), ",")
	c.servingCertPEM, err = os.ReadFile(c.servingCert)
	return c, err
}

func (c *credentials) create(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	servingKey, err := createKey(c.servingKey)
	if err != nil {
		return err
	}
	if _, err := createKey(c.serviceAccountKey); err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "agent-sandbox test control plane"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(10, 0, 0),
		IPAddresses:           []net.IP{net.ParseIP(loopback)},
		DNSNames:              []string{"localhost"},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true, // clients trust it directly
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, servingKey.Public(), servingKey)
	if err != nil {
		return err
	}
	if err := writePEM(c.servingCert, "CERTIFICATE", der); err != nil {
		return err
	}
	admin := rand.Text() + ",admin,admin,system:masters\n"
	return os.WriteFile(c.tokens, []byte(admin), 0o600)
}

// createKey makes a P-256 key (RSA keys would take longer to make than the API server takes to start).
func createKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(path, "EC PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// adminConfig is the client configuration of a cluster administrator, without a client-side rate limit.
func (c *credentials) adminConfig(address net.Addr) *rest.Config {
	return &rest.Config{
		Host:            "https://" + address.String(),
		BearerToken:     c.adminToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.servingCertPEM},
		QPS:             -1,
	}
}

// writeKubeconfig writes the configuration in the form that kubectl and client-go read.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "agent-sandbox-test"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	return clientcmd.WriteToFile(*kubeconfig, path)
}
