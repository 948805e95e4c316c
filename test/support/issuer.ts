import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair, SignJWT } from "jose";

export const AUDIENCE = "https://tollgate.example.com";

type Pair = Awaited<ReturnType<typeof generateKeyPair>>;

/** An issuer of JWT access tokens whose keys and answers a test controls. */
export async function startIssuer() {
  let keys: { kid: string; pair: Pair }[] = [];
  let count = 0;
  const behaviour = { isDown: false, redirects: false };
  const reads = { keys: 0 };
  const server = createServer((request, response) => {
    if (behaviour.isDown) return void response.destroy();
    if (request.url === "/.well-known/openid-configuration") {
      return sendObject(response, { issuer: url, jwks_uri: `${url}/${behaviour.redirects ? "moved" : "keys"}` });
    }
    if (request.url === "/moved") return void response.writeHead(302, { location: `${url}/keys` }).end();
    reads.keys += 1;
    const published = keys.map(async ({ kid, pair }) => ({ ...(await exportJWK(pair.publicKey)), kid, alg: "ES256" }));
    Promise.all(published).then((jwks) => sendObject(response, { keys: jwks }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const rotate = async () => {
    count += 1;
    keys = [{ kid: `key-${count}`, pair: await generateKeyPair("ES256", { extractable: true }) }];
  };
  await rotate();
  return {
    url,
    behaviour,
    reads,
    rotate,
    /** Signs a token; claims that are undefined are left out. */
    async token(claims: Record<string, unknown>, header: object = {}): Promise<string> {
      const [key] = keys;
      if (key === undefined) throw new Error("The issuer has no key");
      const all = { client_id: "client", jti: "id", iss: url, aud: AUDIENCE, email_verified: true, ...claims };
      const iat = Math.floor(Date.now() / 1000);
      return new SignJWT({ iat, exp: iat + 300, ...all })
        .setProtectedHeader({ alg: "ES256", typ: "at+jwt", kid: key.kid, ...header })
        .sign(key.pair.privateKey);
    },
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  };
}

export type Issuer = Awaited<ReturnType<typeof startIssuer>>;

function sendObject(response: ServerResponse, value: object): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(value));
}
