-- What a ModelInfer asks: bounded before Triton reads it, by the bounds of messages.py, which go before
-- this; and its model, for the access log. Only lengths and names are read, a window at a time.
--
-- Where it asks for classes, the HTTP service is asked whether the outputs have any (triton.py).

local PATH = "/inference.GRPCInferenceService/ModelInfer"
local NOTED = { [1] = "model", [2] = "version" }
local INPUT, SHAPE = 5, 3
local OUTPUT, NAME, PARAMETER, KEY = 6, 1, 2, 1
local ANSWER_MS, KNOWN_MS, MOST_KNOWN = 60000, 1000, 100
local HEAD = 5 -- gRPC's own: whether it is compressed, and its length
local WINDOW = 1024

local function refuse(why)
  error(why, 0)
end

local function malformed()
  refuse("the message is malformed")
end

-- The byte at a place, from 0 on, of the body.
local function reader(body)
  local size, from, window = body:length(), 0, ""
  return size, function(place)
    if place >= size then
      malformed()
    end
    if place < from or place >= from + #window then
      from, window = place, body:getBytes(place, math.min(WINDOW, size - place))
    end
    return window:byte(place - from + 1)
  end
end

-- A number of seven bits a byte, and the place behind it.
local function varint(at, place)
  local value, unit = 0, 1
  for read = place, place + 9 do
    local byte = at(read)
    if byte < 128 then
      return value + byte * unit, read + 1
    end
    value, unit = value + (byte - 128) * unit, unit * 128
  end
  malformed()
end

-- The fields from one place to another; returns how many more there may be.
local function check(at, place, stop, known, left, found)
  local seen = {}
  while place < stop do
    local tag, length, value
    tag, place = varint(at, place)
    local number, kind = math.floor(tag / 8), tag % 8
    if kind == 2 then
      length, place = varint(at, place)
    elseif kind == 0 then
      length = 0
      value, place = varint(at, place)
    elseif kind == 1 then
      length = 8
    elseif kind == 5 then
      length = 4
    else
      malformed()
    end
    if number == 0 or number > MOST_NUMBER or place + length > stop then
      malformed()
    end
    if left == 0 then
      refuse("more than " .. MOST_VALUES .. " values; send them as raw_input_contents")
    end
    left = left - 1
    local bound = kind == 2 and known[number]
    if bound then
      seen[number] = (seen[number] or 0) + 1
      if bound.most and seen[number] > bound.most then
        refuse("more than " .. bound.most .. " " .. bound.what .. "; send fewer")
      end
      if bound.longest and length > bound.longest then
        refuse(bound.what .. " of " .. length .. " bytes; send " .. bound.longest .. " at most")
      end
      if bound.inside then
        left = check(at, place, place + length, bound.inside, left)
      end
    end
    -- Of another kind, no field that is looked for: to Triton it is one that it does not know.
    if found and (kind == 2 or kind == 0) then
      found(number, place, length, value)
    end
    place = place + length
  end
  return left
end

-- Of an input, which was checked: how many, if it is of a batch.
local function rows_of(at, place, stop)
  local rows
  check(at, place, stop, {}, MOST_VALUES, function(number, from, length, value)
    if number == SHAPE and not rows then
      rows = value or (length > 0 and varint(at, from))
    end
  end)
  return rows or 1
end

local function text_of(body, place, length)
  return length > 0 and body:getBytes(place, length) or ""
end

-- Of an output, which was checked: its name, if its classes are wanted.
local function name_classified(at, body, place, stop)
  local name, is_classified = "", false
  check(at, place, stop, {}, MOST_VALUES, function(number, from, length, value)
    if number == NAME and not value then
      name = text_of(body, from, length)
    elseif number == PARAMETER and not value then
      check(at, from, from + length, {}, MOST_VALUES, function(key, begins, size, given)
        if key == KEY and not given and size == #CLASSES then
          is_classified = is_classified or text_of(body, begins, size) == CLASSES
        end
      end)
    end
  end)
  return is_classified and name or nil
end

local function escape(text)
  return (text:gsub("[^%w]", function(byte)
    return string.format("%%%02X", byte:byte())
  end))
end

-- What was answered to each question just now. Where nobody answers, what was known before holds.
local known, count = {}, 0

local function ask_for_classes(handle, question)
  local now, found = handle:timestamp(), known[question]
  if found and found.at + KNOWN_MS >= now then
    return found.status
  end
  local headers = { [":method"] = "GET", [":path"] = question, [":authority"] = "localhost" }
  local status = handle:httpCall("beside", headers, nil, found and KNOWN_MS or ANSWER_MS)[":status"]
  if status ~= "200" and status ~= "400" then
    if not found then
      return "503"
    end
    status = found.status
  end
  if not found then
    if count == MOST_KNOWN then
      known, count = {}, 0
    end
    count = count + 1
  end
  known[question] = { at = now, status = status }
  return status
end

-- Returns what is to be asked of the outputs whose classes are wanted, if any are.
local function check_body(body, note)
  local size, at = reader(body)
  local length = at(1) * 16777216 + at(2) * 65536 + at(3) * 256 + at(4)
  if at(0) ~= 0 or HEAD + length ~= size then
    malformed()
  end
  local rows, asked, classified = nil, {}, {}
  check(at, HEAD, size, MESSAGE, MOST_VALUES, function(number, place, length, value)
    if number == INPUT and not value and not rows then
      rows = rows_of(at, place, place + length)
      note:set("envoy.filters.http.lua", "rows", rows)
    end
    if number == OUTPUT and not value then
      table.insert(classified, name_classified(at, body, place, place + length))
    end
    if NOTED[number] and not value then
      local text = text_of(body, place, length)
      asked[NOTED[number]] = text
      note:set("envoy.filters.http.lua", NOTED[number], text:match("^%g*$") or "")
    end
  end)
  if #classified > 0 then
    local model, version = escape(asked.model or ""), escape(asked.version or "")
    local outputs = escape(table.concat(classified, "\n"))
    return HAVE_CLASSES .. "?model=" .. model .. "&version=" .. version .. "&outputs=" .. outputs
  end
end

function envoy_on_request(handle)
  local headers = handle:headers()
  -- What is compressed is refused by its route.
  if headers:get(":path") ~= PATH or (headers:get("grpc-encoding") or "identity") ~= "identity" then
    return
  end
  local body = handle:body(true) -- what was got before it is gone
  local is_well, found = pcall(check_body, body, handle:streamInfo():dynamicMetadata())
  local status = "400"
  if is_well and found then
    status = ask_for_classes(handle, found)
    is_well, found = status == "200", status == "400" and NO_CLASSES or AWAY
  end
  if not is_well then
    handle:respond({ [":status"] = status }, found)
  end
end

-- Triton's gRPC says INTERNAL of what it cannot read.
function envoy_on_response(handle)
  local headers = handle:headers()
  if headers:get("grpc-status") == "13" and headers:get("grpc-message") == "Unable to parse request" then
    headers:replace("grpc-status", "3")
  end
end
