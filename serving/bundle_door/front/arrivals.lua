-- How messages over gRPC arrive, by the numbers of messages.py, which go before this: each takes its
-- share of Envoy's memory as it comes, and may be late for so long.
--
-- A script cannot answer once it has seen a part of a body. So it names a stage, by which the route is
-- chosen again (envoy.py), whose timeouts end the request.

local INFER = "/inference.GRPCInferenceService/ModelInfer"
local STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
local HEAD = 5 -- gRPC's own, of each message: whether it is compressed, and its length
local LARGE, TELL_MS = 131072, 1000 -- of a message that the door is told of
local RECOUNT_MS = 50
local PAGE, COPIED = 4096, 512 -- what is shorter shares a page with others

-- Of each thread, what its messages hold, and when it last took any; after so long all have ended.
local SUM, TAKEN, WIDTH = 0, 1, 2
local GONE_MS = 1.5 * LATE_MS
local threads, thread = { [SUM] = 0, [TAKEN] = 0 }, 0

if THREADS > 1 then
  local ffi = require("ffi")
  ffi.cdef([[
    int open(const char *, int);
    void *mmap(void *, size_t, int, int, int, long);
  ]])
  local READ_WRITE, BOTH, TOGETHER = 2, 3, 1 -- O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED
  local file = ffi.C.open(SHARED, READ_WRITE)
  assert(file >= 0, SHARED .. " is not there")
  local memory = ffi.C.mmap(nil, 8 * WIDTH * THREADS, BOTH, TOGETHER, file, 0)
  threads = ffi.cast("double *", memory)
  -- Envoy calls its threads wrk:worker_0 and so on.
  thread = tonumber(io.open("/proc/thread-self/comm"):read():match("worker_(%d+)") or 0)
end

-- What each request holds, by its coroutine, which Envoy lets go of when the request ends, however
-- that may be; and the sums of it, in which is what has ended since the last count.
local requests = setmetatable({}, { __mode = "k" })
local held, own_total, counted = {}, 0, 0
local streams = 0

local function change_total(bytes)
  own_total = own_total + bytes
  threads[WIDTH * thread + SUM] = threads[WIDTH * thread + SUM] + bytes
end

local function count_again()
  collectgarbage()
  local sum = 0
  held = {}
  for _, request in pairs(requests) do
    held[request.client] = (held[request.client] or 0) + request.bytes
    sum = sum + request.bytes
  end
  change_total(sum - own_total)
end

local function add(request, bytes)
  request.bytes = request.bytes + bytes
  held[request.client] = (held[request.client] or 0) + bytes
  change_total(bytes)
end

-- Of all threads' messages.
local function total(now)
  local sum = 0
  for each = 0, THREADS - 1 do
    if now - threads[WIDTH * each + TAKEN] < GONE_MS then
      sum = sum + threads[WIDTH * each + SUM]
    end
  end
  return sum
end

-- Whether a client's messages hold more than so many times what they leave to all others.
local function holds_more(client, bytes, times, now)
  return (held[client] or 0) + bytes > times * (ROOM - total(now) - bytes)
end

-- Whether it may only make short pauses from now on; nil if there is no room. A small message finds
-- room for longest, whatever else its client sends.
local function take(request, length, now)
  local bytes = length <= COPIED and length or math.ceil(length / PAGE) * PAGE
  bytes = math.min(bytes * COPIES, MOST_OF_ONE - request.bytes)
  threads[WIDTH * thread + TAKEN] = now
  if holds_more(request.client, bytes, 1, now) and now - counted >= RECOUNT_MS then
    count_again()
    counted = now
  end
  if
    holds_more(request.client, bytes, MOST_TIMES, now)
    and (request.bytes + bytes) * MOST_TIMES > ROOM - total(now) - bytes
  then
    return nil
  end
  add(request, bytes)
  return holds_more(request.client, 0, 1, now)
end

local function enter(handle, stage)
  handle:streamInfo():dynamicMetadata():set(STAGES, "stage", stage)
  handle:clearRouteCache()
  handle:metadata() -- which chooses the route
end

local function client_of(handle)
  if CLIENT then
    return handle:headers():get(CLIENT) or ""
  end
  return handle:streamInfo():downstreamRemoteAddress():match("^(.*):%d+$") or ""
end

-- One message: until Envoy has all of it. It counts until it is answered, though Triton may have it.
local function watch_request(handle)
  local request, is_hurried = { client = client_of(handle), bytes = 0 }, false
  requests[coroutine.running()] = request
  local due = handle:timestamp() + BEGIN_MS
  for chunk in handle:bodyChunks() do
    local length, now = chunk:length(), handle:timestamp()
    if due + LATE_MS < now then
      return enter(handle, "late")
    end
    local is_large = take(request, length, now)
    if is_large == nil then
      return enter(handle, "refused")
    end
    if is_large and not is_hurried then
      is_hurried = true
      enter(handle, "hurried")
    end
    due = math.min(due + length * 1000 / SLOWEST, now + AHEAD_MS)
  end
  enter(handle, request.bytes > KEPT and "large" or "complete")
end

-- After a chunk: how many messages of a stream are complete, how much of the next one is there and
-- still to come, and its head so far, which may be cut.
local function follow(at, chunk)
  local place, size = 0, chunk:length()
  while place < size do
    local part
    if at.left > 0 then
      part = math.min(at.left, size - place)
      at.left = at.left - part
    else
      local head = at.head .. chunk:getBytes(place, math.min(HEAD - #at.head, size - place))
      part = #head - #at.head
      at.head = head
      if #head == HEAD then
        local a, b, c, d = head:byte(2, HEAD)
        at.left, at.head = ((a * 256 + b) * 256 + c) * 256 + d, ""
      end
    end
    at.there, place = at.there + part, place + part
    if at.left == 0 and at.head == "" then
      at.complete, at.there = at.complete + 1, 0
    end
  end
end

-- The messages of a stream, which the door gathers: it is told of each large one that is on its way,
-- once a second (streams.py).
local function watch_stream(handle)
  streams = streams + 1
  local number, told, message = streams * THREADS + thread, 0, nil
  handle:headers():replace(NUMBER, tostring(number))
  local at = { complete = 0, there = 0, left = 0, head = "" }
  for chunk in handle:bodyChunks() do
    follow(at, chunk)
    local now = handle:timestamp()
    if at.there >= LARGE and (message ~= at.complete or now - told >= TELL_MS) then
      message, told = at.complete, now
      local path = string.format("%s%d/%d/%d", TOLD, number, at.complete, at.there)
      local question = { [":method"] = "GET", [":path"] = path, [":authority"] = "localhost" }
      handle:httpCall("beside", question, nil, LATE_MS, true)
    end
  end
end

function envoy_on_request(handle)
  local path = handle:headers():get(":path")
  if path == INFER then
    watch_request(handle)
  elseif path == STREAM and GATHERS then
    watch_stream(handle)
  end
end
