import { useEffect, useMemo, useState } from "react";
import { blobOf } from "./attachments.ts";

/** Image of a message or an answer. One at an address is shown as a link, so that nothing is fetched. */
export function Picture({ url, alt }: { url: string; alt: string }) {
  const blob = useMemo(() => blobOf(url), [url]);
  const [source, setSource] = useState<string | null>(null);
  useEffect(() => {
    if (blob === null) return;
    const made = URL.createObjectURL(blob);
    setSource(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  if (source !== null) return <img className="picture" src={source} alt={alt} />;
  if (!/^https?:/.test(url)) return <span className="small faint">{`[image: ${alt}]`}</span>;
  return (
    <a href={url} target="_blank" rel="noopener noreferrer nofollow">
      {`[image: ${alt}]`}
    </a>
  );
}
