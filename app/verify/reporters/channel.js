// The way of results to the supervisor (supervise.py): its first line of input names the descriptor and the key.
const { fd, key, root } = JSON.parse(fs.readFileSync(0, 'latin1').split('\n')[0]);
const secret = Buffer.from(key, 'hex');
const { writeSync } = fs;
const { createHmac } = crypto;
const stringify = JSON.stringify;
let count = 0;

function send(...parts) {
  const text = stringify(parts).replace(/[\u007f-\uffff]/g, (one) => '\\u' + one.charCodeAt(0).toString(16).padStart(4, '0'));
  const mac = createHmac('sha256', secret).update(`${count}:${text}`).digest('hex');
  let line = Buffer.from(`${count} ${mac} ${text}\n`, 'latin1');
  count += 1;
  while (line.length > 0) line = line.subarray(writeSync(fd, line));
}
