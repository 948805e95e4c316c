import { describe, expect, test } from "vitest";
import { imageAddressFault, isPublicHost } from "./image-address.ts";

const PUBLIC = [
  "https://example.com/a.png",
  "https://EXAMPLE.com/a.png",
  "https://example.com:443/a.png",
  "https://example.com./a.png",
  "https://images.example.co.uk/a?b=c#d",
  "https://bücher.de/bild.jpg",
  "https://8.8.8.8/a.png",
  "https://134744072/a.png",
  "https://172.15.255.255/",
  "https://172.32.0.1/",
  "https://100.128.0.1/",
  "https://[2606:4700::1111]/a.png",
  "https://localhost.example.com/",
  "https://mylocal.net/",
  "https://internal.example.com/",
];

/** Addresses that are not, or may not be, on the public internet. */
const PRIVATE = [
  // Loopback, private, link-local and shared addresses.
  "https://127.0.0.1/",
  "https://127.255.255.254/",
  "https://10.0.0.1/",
  "https://172.16.0.1/",
  "https://172.31.255.255/",
  "https://192.168.1.1/",
  "https://169.254.169.254/latest/meta-data/",
  "https://169.254.170.2/v2/credentials",
  "https://100.64.0.1/",
  "https://100.100.100.200/latest/meta-data/",
  "https://0.0.0.0/",
  "https://0.1.2.3/",
  "https://255.255.255.255/",
  "https://224.0.0.1/",
  "https://240.0.0.1/",
  "https://192.0.0.192/",
  "https://192.0.2.1/",
  "https://198.18.0.1/",
  "https://198.51.100.1/",
  "https://203.0.113.1/",
  "https://192.88.99.1/",
  // Other notations.
  "https://2130706433/",
  "https://0x7f000001/",
  "https://0x7F.0.0.1/",
  "https://0177.0.0.1/",
  "https://017700000001/",
  "https://127.1/",
  "https://127.0.1/",
  "https://0/",
  "https://2852039166/",
  "https://0xa9fea9fe/",
  "https://0251.0376.0251.0376/",
  "https://169.254.43518/",
  "https://127.0.0.1./",
  "https://１２７.０.０.１/",
  "https://127。0。0。1/",
  "https://%31%32%37.0.0.1/",
  "https://①②⑦.⓪.⓪.①/",
  // IPv6.
  "https://[::1]/",
  "https://[::]/",
  "https://[0:0:0:0:0:0:0:1]/",
  "https://[::ffff:127.0.0.1]/",
  "https://[::ffff:7f00:1]/",
  "https://[::ffff:169.254.169.254]/",
  "https://[::ffff:8.8.8.8]/",
  "https://[::127.0.0.1]/",
  "https://[::ffff:0:127.0.0.1]/",
  "https://[fc00::1]/",
  "https://[fd00:ec2::254]/",
  "https://[fe80::1]/",
  "https://[fec0::1]/",
  "https://[ff02::1]/",
  "https://[64:ff9b::127.0.0.1]/",
  "https://[64:ff9b:1::a9fe:a9fe]/",
  "https://[2002:7f00:1::]/",
  "https://[2001:0:7f00:1::]/",
  "https://[2001:db8::1]/",
  "https://[3fff::1]/",
  "https://[100::1]/",
  "https://[5f00::1]/",
  "https://[4000::1]/",
  // Names.
  "https://localhost/",
  "https://LOCALHOST./",
  "https://a.localhost/",
  "https://ⓛocalhost/",
  "https://localhost.localdomain/",
  "https://metadata.google.internal/computeMetadata/v1/",
  "https://host.docker.internal/",
  "https://kubernetes.default.svc/",
  "https://db.svc.cluster.local/",
  "https://printer.local/",
  "https://router.lan/",
  "https://nas.home.arpa/",
  "https://wiki.corp/",
  "https://intranet/",
  "https://metadata/",
  "https://a.test/",
  "https://a.invalid/",
  "https://a.onion/",
  "https://1.0.0.127.in-addr.arpa/",
];

const NO_HTTPS = [
  "http://example.com/a.png",
  "HTTP://169.254.169.254/latest/meta-data/",
  "file:///etc/passwd",
  "FILE:///etc/passwd",
  "gopher://127.0.0.1:6379/_INFO",
  "ftp://example.com/a.png",
  "dict://127.0.0.1:11211/stat",
  "ldap://127.0.0.1/",
  "jar:https://example.com!/a.png",
  "javascript:alert(1)",
  "blob:https://example.com/1",
  "s3://bucket/key",
  "gs://bucket/key",
  "about:blank",
  "view-source:https://example.com/",
  "ws://example.com/",
  "\tfile:///etc/passwd",
  "fi\nle:///etc/passwd",
];

const NO_ADDRESS = [
  "a.png",
  "/etc/passwd",
  "//example.com/a.png",
  "https://",
  "https:///",
  "https://exa mple.com/",
  "https://256.256.256.256/",
  "https://1.2.3.4.5/",
  "https://[::1/",
  "https://[fe80::1%25eth0]/",
  "https://a<b/",
  "",
];

const WITH_PARTS = [
  ["a user", "https://user@example.com/a.png", "user name"],
  ["a password", "https://user:secret@example.com/a.png", "user name"],
  ["an address as the user", "https://example.com@127.0.0.1/", "user name"],
  ["a port", "https://example.com:6379/", "port"],
  ["the port of another scheme", "https://example.com:80/", "port"],
  ["too many characters", `https://example.com/${"a".repeat(8_192)}`, "longer than 8192"],
] as const;

describe("Addresses of images", () => {
  test.each(PUBLIC)("%s is accepted.", (address) => {
    expect(imageAddressFault(address)).toBeUndefined();
  });

  test.each(PRIVATE)("%s is rejected as not public.", (address) => {
    expect(imageAddressFault(address)).toMatch(/^the address is not public\./);
  });

  test.each(NO_HTTPS)("%j is rejected because of its scheme.", (address) => {
    expect(imageAddressFault(address)).toMatch(/^the scheme '[a-z0-9-]+:' is not allowed\./);
  });

  test.each(NO_ADDRESS)("%j is rejected as an invalid URL.", (address) => {
    expect(imageAddressFault(address)).toMatch(/^not a valid URL\.|^the address is not public\./);
  });

  test.each(WITH_PARTS)("An address with %s is rejected.", (_name, address, words) => {
    expect(imageAddressFault(address)).toContain(words);
  });
});

describe("Images in data: URLs", () => {
  test.each([
    "data:image/png;base64,iVBORw0KGgo=",
    "data:image/jpeg;base64,AAAA",
    "data:image/webp;base64,AAAAAA==",
    "data:image/gif;base64,AAAAAA",
  ])("%s is accepted.", (address) => {
    expect(imageAddressFault(address)).toBeUndefined();
  });

  test.each([
    "data:,hello",
    "data:text/html;base64,AAAA",
    "data:application/pdf;base64,AAAA",
    "data:image/svg+xml;base64,AAAA",
    "data:image/png,AAAA",
    "data:image/png;charset=utf-8;base64,AAAA",
    "DATA:image/png;base64,AAAA",
    " data:image/png;base64,AAAA",
    "data:image/png;base64;base64,AAAA",
  ])("%j is rejected because of its type.", (address) => {
    expect(imageAddressFault(address)).toMatch(/^expected data:image\/…;base64,… with one of the image types png, /);
  });

  test.each(["", "A", "AAAAA", "AA=", "AAAA=", "A===", "AA==AA", "AA AA", "AA\nAA", "AA-_", "====", "AAAA!", "%41AAA"])(
    "the bytes %j are refused",
    (data) => {
      expect(imageAddressFault(`data:image/png;base64,${data}`)).toBe("the image is not valid base64");
    },
  );

  test("A message never repeats more than the scheme of an address.", () => {
    expect(imageAddressFault(`${"x".repeat(1_000)}:secret`)?.length).toBeLessThan(200);
  });
});

describe("Hosts", () => {
  test.each([
    ["example.com", true],
    ["8.8.8.8", true],
    ["[2606:4700::1111]", true],
    ["127.0.0.1", false],
    ["[::1]", false],
    ["vllm", false],
    ["gpu.internal", false],
    ["a..", false],
  ])("The host %s is public: %s.", (host, isPublic) => {
    expect(isPublicHost(host)).toBe(isPublic);
  });
});
